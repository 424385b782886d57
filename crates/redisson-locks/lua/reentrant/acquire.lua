-- Takes a lock that is free or the holder's own, and counts the holder's entries.
--
-- KEYS[1]  lock  HASH  holder -> number of its entries; time to live = lease
-- ARGV[1]  lease_ms
-- ARGV[2]  holder
--
-- Replies  nil when the lock is the holder's now, else the milliseconds until its lease ends (-1: never)
--
-- Cost: O(1).

local lock = KEYS[1]
local lease_ms, holder = ARGV[1], ARGV[2]

if redis.call('EXISTS', lock) == 0 or redis.call('HEXISTS', lock, holder) == 1 then
  redis.call('HINCRBY', lock, holder, 1)
  redis.call('PEXPIRE', lock, lease_ms)
  return nil
end
return redis.call('PTTL', lock)
