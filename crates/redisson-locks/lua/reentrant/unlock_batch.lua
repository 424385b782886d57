#!lua flags=allow-oom
-- Releases locks that a batch's holder has entered once each, and wakes up their waiters. A repeated request finds
-- nothing to decide, so no latch is needed.
--
-- KEYS     the locks  HASH  holder -> number of its entries: one
-- ARGV[1]  message that wakes up waiters; Redisson reads it as a number
-- ARGV[2]  holder
-- ARGV[3]  pattern of all locks' channels; in place of the `*` stands the lock's name, in braces if it has none itself
-- ARGV[4]  1 for locks in memory only, as they were taken
--
-- Replies  number of locks that were the holder's
--
-- Cost: O(locks), and O(channels of this Redis that have subscribers). May run on a full Redis, or a full Redis could
-- never be drained.

local message, holder, channels, is_volatile = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'

-- If the append-only file was rewritten, or a replica synchronised, while the lock was held, the copy there keeps the lock
-- until its lease has ended.
if is_volatile then redis.set_repl(redis.REPL_NONE) end

-- As a rule the locks have no waiters, and one question says so. A client that subscribes later tries again after that,
-- and finds the lock free. A waiter that listens at a replica isn't seen, and waits until the lease would have ended.
local channel_of = {}
for _, channel in ipairs(redis.call('PUBSUB', 'CHANNELS', channels)) do
  local lock = string.sub(channel, #channels)
  channel_of[lock] = channel
  channel_of[string.match(lock, '^{(.*)}$') or lock] = channel
end

local freed = 0
for _, lock in ipairs(KEYS) do
  -- The holder's field is the only one, and a hash without fields is gone. A lock that another holder has by now lacks the
  -- field. Protected, because a key of another type must not keep the locks behind it from being released.
  if redis.pcall('HDEL', lock, holder) == 1 then
    if channel_of[lock] then redis.call('PUBLISH', channel_of[lock], message) end
    freed = freed + 1
  end
end
return freed
