-- Gives the claim of a dead letter its unit, unless it has one.
--
-- KEYS[1]  coupon  HASH  the sale
-- KEYS[2]  lane    HASH  epoch, state and replication ID of the lane
-- KEYS[3]  shard   HASH  shard of the user, user id -> order id of the live claim
-- ARGV[1]  epoch of the lane, as the caller knows it
-- ARGV[2]  shards of the sale, as the caller knows them
-- ARGV[3]  user id
-- ARGV[4]  order id of the claim
--
-- Replies  GRANTED     the claim has taken a unit, and the user is a buyer by this order
--          HELD        the user was a buyer by this order already
--          OTHER       the user is a buyer by another order
--          NO_UNIT     no unit is left
--          NOT_LOADED  the sale isn't loaded
--          STALE       the lane or the sale has another epoch than the caller's, or the sale other shards
--          RECOVERING  the lane isn't open on this server: it is recovering or lost, or was opened for another one
--          LOST        the shard lacks its sentinel, or the sale its stock: Redis has lost data
--
-- Cost: O(1). Window and state of the sale don't matter: they allowed the claim when it was accepted. Nothing is
-- appended to the order log, because the caller writes the order. May run any number of times.

local coupon, lane, shard = KEYS[1], KEYS[2], KEYS[3]
local epoch, shards, user, order = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local of_lane = redis.call('HMGET', lane, 'epoch', 'state', 'replid')
local replid = string.match(redis.call('INFO', 'replication'), 'role:master.-master_replid:(%x+)')
local sale = redis.call('HMGET', coupon, 'state', 'epoch', 'shards', 'stock')
local state, sale_epoch, sale_shards, stock = sale[1], sale[2], sale[3], tonumber(sale[4])

if of_lane[2] ~= 'open' or of_lane[3] ~= replid then return 'RECOVERING' end
if not state or state == 'loading' then return 'NOT_LOADED' end
if of_lane[1] ~= epoch or sale_epoch ~= epoch or sale_shards ~= shards then return 'STALE' end
local held = redis.call('HMGET', shard, '-', user)
if not held[1] or not stock then return 'LOST' end
if held[2] == order then return 'HELD' end
if held[2] then return 'OTHER' end
if stock < 1 then return 'NO_UNIT' end

redis.call('HINCRBY', coupon, 'stock', -1)
redis.call('HSET', shard, user, order)
return 'GRANTED'
