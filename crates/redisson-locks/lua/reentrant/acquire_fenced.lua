-- Takes a lock as acquire.lua does, and draws a fencing token, larger than all before it.
--
-- KEYS[1]  lock   HASH    holder -> number of its entries; time to live = lease
-- KEYS[2]  token  STRING  the last fencing token; never expires
-- ARGV[1]  lease_ms
-- ARGV[2]  holder
--
-- Replies  {-1, token} when the lock is the holder's now, also on re-entry;
--          else {milliseconds until its lease ends, -1}
--
-- Cost: O(1).

local lock, token = KEYS[1], KEYS[2]
local lease_ms, holder = ARGV[1], ARGV[2]

if redis.call('EXISTS', lock) == 0 or redis.call('HEXISTS', lock, holder) == 1 then
  -- First, because INCR can fail (a value that is no number), and an error keeps the writes before it.
  local drawn = redis.call('INCR', token)
  redis.call('HINCRBY', lock, holder, 1)
  redis.call('PEXPIRE', lock, lease_ms)
  return {-1, drawn}
end
return {redis.call('PTTL', lock), -1}
