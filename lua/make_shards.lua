-- Makes shards, without buyers, for a sale that is being loaded.
--
-- KEYS[1]  coupon  HASH  the sale, as load_sale.lua has written it
-- KEYS[2]  lane    HASH  state and replication ID of the lane
-- KEYS[3..] some of its shards; HASH, user id -> order id
-- ARGV[1]  id of the load that the caller goes on with
--
-- Replies  MADE     the shards are there
--          PRESENT  the sale has been opened before, with all of its shards; nothing has changed
--          MISSING  the sale isn't there, or is another load's; nothing has changed
--          RECOVERING  the lane isn't open on this server: it is recovering or lost, or was opened for another one
--
-- Cost: O(shards named here); the caller names so few that no other client waits long. Each shard gets the sentinel
-- '-', by which claim.lua tells an empty shard from one that Redis has lost. So no shard may be made in an open sale:
-- that would hide a loss. Until the sale is open, the script may run any number of times.

local coupon, lane = KEYS[1], KEYS[2]
local load_id = ARGV[1]

local of_lane = redis.call('HMGET', lane, 'state', 'replid')
local replid = string.match(redis.call('INFO', 'replication'), 'role:master.-master_replid:(%x+)')
if of_lane[1] ~= 'open' or of_lane[2] ~= replid then return 'RECOVERING' end
local sale = redis.call('HMGET', coupon, 'state', 'load')
if not sale[1] or sale[2] ~= load_id then return 'MISSING' end
if sale[1] ~= 'loading' then return 'PRESENT' end

for i = 3, #KEYS do redis.call('HSET', KEYS[i], '-', '') end
return 'MADE'
