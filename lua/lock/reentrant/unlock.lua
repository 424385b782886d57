-- Gives a lock back once; who has it more often goes on holding it. Asked again with the same latch, it repeats
-- its first answer and does nothing.
--
-- KEYS[1]  lock     HASH     holder -> how often it has the lock
-- KEYS[2]  channel  pub/sub  where those listen who wait for the lock
-- KEYS[3]  latch    STRING   the first answer to this request
-- ARGV[1]  message that wakes them up; Redisson reads it as a number
-- ARGV[2]  lease_ms, for a lock that is still held
-- ARGV[3]  holder
-- ARGV[4]  publish, the command that sends the message
-- ARGV[5]  latch_ms, for how long the answer is kept
--
-- Replies  nil when it isn't the holder's, 0 when it is still held, 1 when it is free now
--
-- Cost: O(1), and the subscribers of the channel.

local lock, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local message, lease_ms, holder, publish, latch_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local answered = redis.call('GET', latch)
if answered then
  return tonumber(answered)
end
if redis.call('HEXISTS', lock, holder) == 0 then
  return nil
end
if redis.call('HINCRBY', lock, holder, -1) > 0 then
  redis.call('PEXPIRE', lock, lease_ms)
  redis.call('SET', latch, 0, 'PX', latch_ms)
  return 0
end
redis.call('DEL', lock)
redis.call(publish, channel, message)
redis.call('SET', latch, 1, 'PX', latch_ms)
return 1
