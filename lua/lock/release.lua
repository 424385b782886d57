#!lua flags=allow-oom
-- Releases locks that still belong to their owner; never one that somebody else holds by now.
--
-- KEYS     the locks  STRING  the owner
-- ARGV[1]  owner
--
-- Replies  number of locks released
--
-- Cost: O(locks). May run on a full Redis, or a full Redis could never be drained.

local owner = ARGV[1]

local released = 0
for _, lock in ipairs(KEYS) do
  if redis.call('GET', lock) == owner then
    released = released + redis.call('DEL', lock)
  end
end
return released
