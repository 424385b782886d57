#!lua flags=allow-oom
-- Closes a lane: from now on every script that sells or returns units refuses.
--
-- KEYS[1]  lane  HASH  epoch, state, beat and counts of the lane
-- ARGV[1]  epoch of the recovery
--
-- Replies  FENCED  the lane is recovering under this epoch
--          AHEAD   the lane has a newer epoch: another process recovers it, or Postgres went back in time
--
-- Cost: O(1). One write covers all sales of the lane, also those that will be there later. May run on a full Redis. A
-- lane, or a count, that can't be read is removed: as if Redis had lost it.

local lane = KEYS[1]
local epoch = ARGV[1]

local COUNTS = { 'beat', 'promised', 'written' }

local facts = redis.pcall('HMGET', lane, 'epoch', unpack(COUNTS))
if facts.err then redis.call('DEL', lane) end
if (tonumber(facts[1] or 0) or 0) > tonumber(epoch) then return 'AHEAD' end
for i, count in ipairs(COUNTS) do
  if facts[i + 1] and not tonumber(facts[i + 1]) then redis.call('HDEL', lane, count) end
end
redis.call('HSET', lane, 'epoch', epoch, 'state', 'recovering')
return 'FENCED'
