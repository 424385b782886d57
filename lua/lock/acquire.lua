#!lua flags=allow-oom
-- Tries to take locks, each one for itself: some may succeed while others are held elsewhere.
--
-- KEYS     the locks  STRING  the owner, with the lease as its time to live
-- ARGV[1]  owner, random for each attempt
-- ARGV[2]  lease_ms
--
-- Replies  a list with 1 (taken) or 0 (held elsewhere) for each key
--
-- Cost: O(locks). May run on a full Redis, or a full Redis could never be drained.

local owner, lease_ms = ARGV[1], ARGV[2]

local taken = {}
for i, lock in ipairs(KEYS) do
  taken[i] = redis.call('SET', lock, owner, 'NX', 'PX', lease_ms) and 1 or 0
end
return taken
