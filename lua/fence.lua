#!lua flags=allow-oom
-- Closes a lane: from now on every script that sells or returns units refuses.
--
-- KEYS[1]  lane  HASH    epoch, state, beat and counts of the lane, and whether its log is lost
-- KEYS[2]  log   STREAM  the log of calls of the lane
-- ARGV[1]  epoch of the recovery
--
-- Replies  FENCED  the lane is recovering under this epoch
--          AHEAD   the lane has a newer epoch: another process recovers it, or Postgres went back in time
--
-- Cost: O(1). One write covers all sales of the lane, also those that will be there later. May run on a full Redis. A
-- lane, or a count, that can't be read is removed: as if Redis had lost it. A log that is missing although orders were
-- promised is noted as lost, until the lane is opened: a recovery that begins again still knows.

local lane, log = KEYS[1], KEYS[2]
local epoch = ARGV[1]

local COUNTS = { 'beat', 'promised', 'written' }

local facts = redis.pcall('HMGET', lane, 'epoch', unpack(COUNTS))
if facts.err then redis.call('DEL', lane) end
if (tonumber(facts[1] or 0) or 0) > tonumber(epoch) then return 'AHEAD' end
for i, count in ipairs(COUNTS) do
  if facts[i + 1] and not tonumber(facts[i + 1]) then redis.call('HDEL', lane, count) end
end
redis.call('HSET', lane, 'epoch', epoch, 'state', 'recovering')
local promised = tonumber(redis.call('HGET', lane, 'promised') or 0)
if promised > 0 and redis.call('EXISTS', log) == 0 then redis.call('HSET', lane, 'log', 'lost') end
return 'FENCED'
