-- Releases one entry of a holder; a holder with more entries goes on holding the lock. A request that is repeated with
-- the same latch gets its first answer and changes nothing.
--
-- KEYS[1]  lock     HASH     holder -> number of its entries
-- KEYS[2]  channel  pub/sub  of the lock's waiters
-- KEYS[3]  latch    STRING   the first answer to this request
-- ARGV[1]  message that wakes up waiters; Redisson reads it as a number
-- ARGV[2]  lease_ms, for a lock that is still held
-- ARGV[3]  holder
-- ARGV[4]  publish, the command that sends the message
-- ARGV[5]  latch_ms, time for which the answer is kept
--
-- Replies  nil when the lock isn't the holder's, 0 when the holder still has it, 1 when it is free now
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
