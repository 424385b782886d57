-- Begins a lane that Redis has never had.
--
-- KEYS[1]  lane  HASH  epoch, state, beat and counts of the lane
-- ARGV[1]  epoch of the lane
--
-- Replies  epoch that the lane has now: the caller's, or the one that it had before
--
-- Cost: O(1). Only for a lane of which Postgres has no approved life of Redis: anywhere else a missing epoch is a loss.

local lane = KEYS[1]
local epoch = ARGV[1]

if redis.call('HSETNX', lane, 'epoch', epoch) == 1 then
  redis.call('HSET', lane, 'state', 'open', 'beat', '0')
end
return tonumber(redis.call('HGET', lane, 'epoch'))
