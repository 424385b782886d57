-- Renews the leases of locks that still belong to their holders.
--
-- KEYS     the locks  HASH  holder -> number of its entries
-- ARGV[1]  lease_ms
-- ARGV[2..] the holder of each; behind them 1 for locks in memory only, which Redisson doesn't know
--
-- Replies  a list with 1 (renewed) or 0 (no longer the holder's) for each key
--
-- Cost: O(locks).

local lease_ms, is_volatile = ARGV[1], ARGV[#KEYS + 2] == '1'

if is_volatile then redis.set_repl(redis.REPL_NONE) end

local renewed = {}
for i, lock in ipairs(KEYS) do
  renewed[i] = 0
  if redis.call('HEXISTS', lock, ARGV[i + 1]) == 1 then
    renewed[i] = redis.call('PEXPIRE', lock, lease_ms)
  end
end
return renewed
