-- Takes a lock away from whoever holds it.
--
-- KEYS[1]  lock     HASH     holder -> how often it has the lock
-- KEYS[2]  channel  pub/sub  where those listen who wait for the lock
-- ARGV[1]  message that wakes them up; Redisson reads it as a number
-- ARGV[2]  publish, the command that sends the message
--
-- Replies  1 when somebody held it, else 0
--
-- Cost: O(1), and the subscribers of the channel.

local lock, channel = KEYS[1], KEYS[2]
local message, publish = ARGV[1], ARGV[2]

local taken = redis.call('DEL', lock)
if taken == 1 then
  redis.call(publish, channel, message)
end
return taken
