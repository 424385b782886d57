-- Renews the leases of locks that still belong to their holders.
--
-- KEYS     the locks  HASH  holder -> number of its entries
-- ARGV[1]  lease_ms
-- ARGV[2..] the holder of each
--
-- Replies  a list with 1 (renewed) or 0 (no longer the holder's) for each key
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
