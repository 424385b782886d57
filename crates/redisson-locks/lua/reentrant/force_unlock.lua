-- Takes a lock away from its holder, whichever that is.
--
-- KEYS[1]  lock     HASH     holder -> number of its entries
-- KEYS[2]  channel  pub/sub  of the lock's waiters
-- ARGV[1]  message that wakes up waiters; Redisson reads it as a number
-- ARGV[2]  publish, the command that sends the message
--
-- Replies  1 when the lock was held, else 0
--
-- Cost: O(1), and the subscribers of the channel.

local lock, channel = KEYS[1], KEYS[2]
local message, publish = ARGV[1], ARGV[2]

local taken = redis.call('DEL', lock)
if taken == 1 then
  redis.call(publish, channel, message)
end
return taken
