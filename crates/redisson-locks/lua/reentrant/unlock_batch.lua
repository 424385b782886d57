#!lua flags=allow-oom
-- Releases locks that a batch's holder has entered once each, and wakes up their waiters. A repeated request finds
-- nothing to decide, so no latch is needed.
--
-- KEYS     the locks  HASH  holder -> number of its entries: one
-- ARGV[1]  message that wakes up waiters; Redisson reads it as a number
-- ARGV[2]  holder
-- ARGV[3]  pattern of all locks' channels; in place of the `*` stands the lock's name, in braces if it has none itself
--
-- Replies  number of locks that were the holder's
--
-- Cost: O(locks), and O(channels of this Redis that have subscribers). May run on a full Redis, or a full Redis could
-- never be drained.
-- Replicas get the writes, the append-only file doesn't, as of the taking. If the file was rewritten in between and
-- contains the lock, the lock ends with its lease after a restart.

local message, holder, channels = ARGV[1], ARGV[2], ARGV[3]

redis.set_repl(redis.REPL_REPLICA)

-- As a rule the locks have no waiters, and one question says so. A waiter that listens at a replica isn't seen, and waits
-- until the lease would have ended.
local channel_of = {}
for _, channel in ipairs(redis.call('PUBSUB', 'CHANNELS', channels)) do
  local lock = string.sub(channel, #channels)
  channel_of[lock] = channel
  channel_of[string.match(lock, '^{(.*)}$') or lock] = channel
end

local freed = 0
for _, lock in ipairs(KEYS) do
  -- The only field: a hash without fields is gone.
  if redis.call('HDEL', lock, holder) == 1 then
    if channel_of[lock] then redis.call('PUBLISH', channel_of[lock], message) end
    freed = freed + 1
  end
end
return freed
