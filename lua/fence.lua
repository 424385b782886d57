#!lua flags=allow-oom
-- Closes a lane: from now on every script that sells or returns units refuses.
--
-- KEYS[1]  lane  HASH  epoch, state, beat and counts of the lane
-- ARGV[1]  epoch of the recovery
--
-- Replies  FENCED  the lane is recovering under this epoch
--          AHEAD   the lane has a newer epoch: another process recovers it, or Postgres went back in time
--
-- Cost: O(1). One write covers all sales of the lane, also those that will be there later. May run on a full Redis.

local lane = KEYS[1]
local epoch = ARGV[1]

local present = redis.call('HGET', lane, 'epoch')
if present and tonumber(present) > tonumber(epoch) then return 'AHEAD' end
redis.call('HSET', lane, 'epoch', epoch, 'state', 'recovering')
return 'FENCED'
