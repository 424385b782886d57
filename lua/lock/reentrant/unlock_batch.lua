#!lua flags=allow-oom
-- Gives locks back that a batch's holder has once each, and wakes up those who wait for them. It has nothing to
-- decide the second time, so it can be repeated without a latch.
--
-- KEYS     the locks  HASH  holder -> how often it has the lock: once
-- ARGV[1]  message that wakes them up; Redisson reads it as a number
-- ARGV[2]  holder
-- ARGV[3]  pattern of all locks' channels; each has, where the `*` is, its lock's name, in braces if it has none itself
--
-- Replies  number of locks that were the holder's
--
-- Cost: O(locks), and O(channels of this Redis that have subscribers). May run on a full Redis, or a full Redis could
-- never be drained.
-- Replicas hear of it, the append-only file doesn't, as it doesn't of the taking. If it has been rewritten in between,
-- and knows the lock from there, the lock ends with its lease after a restart.

local message, holder, channels = ARGV[1], ARGV[2], ARGV[3]

redis.set_repl(redis.REPL_REPLICA)

-- As a rule nobody waits for any of them, and one question says so. Who listens at a replica isn't seen, and waits until
-- the lease would have ended.
local channel_of = {}
for _, channel in ipairs(redis.call('PUBSUB', 'CHANNELS', channels)) do
  local lock = string.sub(channel, #channels)
  channel_of[lock] = channel
  channel_of[string.match(lock, '^{(.*)}$') or lock] = channel
end

local freed = 0
for _, lock in ipairs(KEYS) do
  -- The only field, and a hash without fields is gone.
  if redis.call('HDEL', lock, holder) == 1 then
    if channel_of[lock] then redis.call('PUBLISH', channel_of[lock], message) end
    freed = freed + 1
  end
end
return freed
