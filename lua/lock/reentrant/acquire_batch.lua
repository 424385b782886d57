#!lua flags=allow-oom
-- Tries to take locks, each one for itself: some may succeed while others are held elsewhere. The holder is one of
-- this batch's own, so none of them can be its own already.
--
-- KEYS     the locks  HASH  holder -> how often it has the lock: once; time to live = lease
-- ARGV[1]  lease_ms
-- ARGV[2]  holder
--
-- Replies  a list with 1 (taken) or 0 (held elsewhere) for each key
--
-- Cost: O(locks). May run on a full Redis, or a full Redis could never be drained.

local lease_ms, holder = ARGV[1], ARGV[2]

-- As a rule nobody holds any of them, and one question says so. Lua hands on no more than some 8,000 values.
local all_free = #KEYS <= 7000 and redis.call('EXISTS', unpack(KEYS)) == 0

local taken = {}
for i, lock in ipairs(KEYS) do
  taken[i] = 0
  if all_free or redis.call('EXISTS', lock) == 0 then
    redis.call('HSET', lock, holder, 1)
    taken[i] = redis.call('PEXPIRE', lock, lease_ms)
  end
end
return taken
