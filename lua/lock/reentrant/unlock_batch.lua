#!lua flags=allow-oom
-- Gives locks back that a batch's holder has once each, and wakes up those who wait for them. It has nothing to
-- decide the second time, so it can be repeated without a latch.
--
-- KEYS     the locks  HASH  holder -> how often it has the lock: once
-- ARGV[1]  message that wakes them up; Redisson reads it as a number
-- ARGV[2]  holder
-- ARGV[3..] the channel of each
--
-- Replies  number of locks that were the holder's
--
-- Cost: O(locks), and the subscribers of the channels. May run on a full Redis, or a full Redis could never be drained.

local message, holder = ARGV[1], ARGV[2]

local freed = 0
for i, lock in ipairs(KEYS) do
  -- The only field, and a hash without fields is gone.
  if redis.call('HDEL', lock, holder) == 1 then
    redis.call('PUBLISH', ARGV[i + 2], message)
    freed = freed + 1
  end
end
return freed
