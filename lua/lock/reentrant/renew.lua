-- Renews the leases of locks, each of a holder of its own.
--
-- KEYS     the locks  HASH  holder -> how often it has the lock
-- ARGV[1]  lease_ms
-- ARGV[2..] the holder of each
--
-- Replies  a list with 1 (renewed) or 0 (not the holder's any more) for each key
--
-- Cost: O(locks).

local lease_ms = ARGV[1]

local renewed = {}
for i, lock in ipairs(KEYS) do
  renewed[i] = 0
  if redis.call('HEXISTS', lock, ARGV[i + 1]) == 1 then
    renewed[i] = redis.call('PEXPIRE', lock, lease_ms)
  end
end
return renewed
