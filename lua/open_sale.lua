-- Opens a loaded sale to claims, once Postgres has noted that it is in Redis.
--
-- KEYS[1]  coupon  HASH  the sale, as the claim script reads it
-- KEYS[2]  lane    HASH  epoch, state and replication ID of the lane, and the sale that was opened last
-- ARGV[1]  id of the load that Postgres has noted
-- ARGV[2]  id of the coupon
--
-- Replies  OPENED   the sale was loading and has the state of its revision now
--          PRESENT  the sale had been opened before; nothing has changed
--          MISSING  the sale isn't there, or is another load's than the noted one: Redis has lost data
--          BEHIND   the sale is loading under another epoch than the lane's: Redis has lost data, since Postgres notes
--                   a load only under the epoch that it began in
--          RECOVERING  the lane isn't open on this server: it is recovering or lost, or was opened for another one
--
-- Cost: O(1). The load id guards against a process that sleeps while the sale is loaded, sold and lost, and then writes
-- the sale once more: without the id, all units would be sold again. The state is the one that was loaded with the
-- other values, not one that the caller read at another time: together they are one revision.

local coupon, lane = KEYS[1], KEYS[2]
local noted_load_id, id = ARGV[1], ARGV[2]

local of_lane = redis.call('HMGET', lane, 'epoch', 'state', 'replid')
local replid = string.match(redis.call('INFO', 'replication'), 'role:master.-master_replid:(%x+)')
if of_lane[2] ~= 'open' or of_lane[3] ~= replid then return 'RECOVERING' end
local sale = redis.call('HMGET', coupon, 'state', 'load', 'opens_as', 'epoch')
local state, load_id, opens_as, epoch = sale[1], sale[2], sale[3], sale[4]
if not state or load_id ~= noted_load_id then return 'MISSING' end
if state ~= 'loading' then return 'PRESENT' end
if epoch ~= of_lane[1] then return 'BEHIND' end

redis.call('HSET', coupon, 'state', opens_as)
-- A Postgres that lacks this load later has gone back in time.
redis.call('HSET', lane, 'sale', id, 'sale_load', load_id)
return 'OPENED'
