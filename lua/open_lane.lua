#!lua flags=allow-oom
-- Opens a lane after its recovery, with the sales that were kept.
--
-- KEYS[1]  lane    HASH  epoch, state and counts of the lane, and the second of its order ids
-- KEYS[2..] coupon  HASH  the sales that agree with Postgres; those that were built anew have the epoch already
-- ARGV[1]  epoch of the recovery
-- ARGV[2]  second, since 2022, after which the next order ids begin: no order id that was seen has a later one
-- ARGV[3]  least number of orders that the lane has accepted; all of them are written. -1 leaves the counts as they are
--
-- Replies  OPENED   the lane is open
--          PRESENT  the lane was open already; nothing has changed
--          FENCED   another recovery has begun, or the server isn't the one that was recovered; nothing has changed
--
-- Cost: O(sales). Postgres has approved the epoch before. A server that has restarted or resynchronised since has
-- another replication ID than the lane, so every script refuses, and the next check closes the lane. The next order ids
-- are also above those that Redis itself has made, unless its clock was more than a day ahead then. May run on a full
-- Redis.

local lane = KEYS[1]
local epoch, second_min, accepted_min = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local facts = redis.call('HMGET', lane, 'epoch', 'state', 'accepted', 'second')
if facts[1] ~= epoch then return 'FENCED' end
if facts[2] == 'open' then return 'PRESENT' end
for i = 2, #KEYS do
  if redis.pcall('HEXISTS', KEYS[i], 'epoch') == 1 then redis.call('HSET', KEYS[i], 'epoch', epoch) end
end
local second = tonumber(facts[4] or 0)
if second < second_min or second > second_min + 86400 then second = second_min end
redis.call('HSET', lane, 'state', 'open', 'second', string.format('%d', second + 1), 'used', '0')
local accepted = math.max(accepted_min, facts[3] or 0)
if accepted_min >= 0 then
  local orders = string.format('%d', accepted)
  redis.call('HSET', lane, 'accepted', orders, 'written', orders)
end
return 'OPENED'
