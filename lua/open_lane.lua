#!lua flags=allow-oom
-- Opens a lane after its recovery.
--
-- KEYS[1]  lane  HASH  epoch, state, beat and counts of the lane, second of its order ids, and steps of its recovery
-- ARGV[1]  epoch of the recovery
-- ARGV[2]  beat that Postgres has noted
-- ARGV[3]  replication ID of the server that Postgres has approved
-- ARGV[4]  orders that the lane has promised at least; all of them are written. -1 leaves the counts as they are
-- ARGV[5]  steps of the recovery: sales taken over, sales and lists built and put in their places
-- ARGV[6]  second, since 2022, behind which the next order ids begin: no order id that was seen has a later one
--
-- Replies  OPENED   the lane is open
--          PRESENT  the lane was open already, and has not been touched
--          FENCED   another recovery has begun, or the server has gone back meanwhile; nothing has changed
--
-- Cost: O(1), and INFO. Postgres has approved the epoch before. A server that was synchronised anew since, from a state
-- of this recovery, has all that the lane says, and perhaps not the sales that were built. Nor has one whose memory went
-- back to a moment of this recovery: it has fewer steps. The next order ids are above those that Redis has made, too,
-- unless its clock was more than a day ahead then. May run on a full Redis.

local lane = KEYS[1]
local epoch, beat, approved, promised_min = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local steps, second_min = ARGV[5], tonumber(ARGV[6])

local facts = redis.call('HMGET', lane, 'epoch', 'state', 'promised', 'steps', 'second')
if facts[1] ~= epoch then return 'FENCED' end
local replication_id = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if replication_id ~= approved then return 'FENCED' end
if facts[2] == 'open' then return 'PRESENT' end
if facts[4] ~= steps then return 'FENCED' end
local second = tonumber(facts[5] or 0)
if second < second_min or second > second_min + 86400 then second = second_min end
redis.call('HSET', lane, 'state', 'open', 'beat', beat, 'second', string.format('%d', second + 1), 'used', '0')
redis.call('HDEL', lane, 'log', 'steps')
local promised = math.max(promised_min, facts[3] or 0)
if promised_min >= 0 and promised > 0 then
  local orders = string.format('%d', promised)
  redis.call('HSET', lane, 'promised', orders, 'written', orders)
end
return 'OPENED'
