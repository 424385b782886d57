-- Begins a lane that Redis has never had.
--
-- KEYS[1]  lane  HASH  epoch, state, replication ID and counts of the lane
-- ARGV[1]  epoch of the lane
-- ARGV[2]  id of the installation
-- ARGV[3]  incarnation of its Postgres, or '' if that is unknown
--
-- Replies  epoch of the lane: the caller's, or the one that it had before; 0 if the lane belongs to another
--          installation: nothing has changed then
--
-- Cost: O(1), and INFO. Only for a lane that Postgres has not noted as begun: anywhere else a missing epoch is a loss.

local lane = KEYS[1]
local epoch, installation, postgres_run = ARGV[1], ARGV[2], ARGV[3]

local owner = redis.call('HGET', lane, 'installation')
if owner and owner ~= installation then return 0 end
if redis.call('HSETNX', lane, 'epoch', epoch) == 1 then
  local replid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
  redis.call('HSET', lane, 'state', 'open', 'replid', replid, 'installation', installation)
  if postgres_run ~= '' then redis.call('HSET', lane, 'postgres', postgres_run) end
end
return tonumber(redis.call('HGET', lane, 'epoch'))
