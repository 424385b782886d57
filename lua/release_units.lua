#!lua flags=allow-oom
-- Returns units of one sale to stock: each only if its buyer still holds the order that was closed.
--
-- KEYS[1]  coupon  HASH  the sale
-- KEYS[2]  lane    HASH  epoch, state and replication ID of the lane
-- KEYS[3..] for each unit the shard of its user; HASH, user id -> order id of the live claim
-- ARGV[1]  coupon id
-- ARGV[2]  epoch of the lane, as the caller knows it
-- ARGV[3]  shards of the sale, as the caller knows them
-- ARGV[4]  channel on which released units are announced
-- ARGV[5..] user id and order id of each unit
--
-- Replies  a list, one code for each unit
--   RELEASED  the user is no longer a buyer, and the unit can be claimed
--   NOT_HELD    the user holds no unit by this order: it has been released before
--          or one code for all units, and nothing has changed
--   NOT_LOADED  the sale isn't loaded
--   STALE       the lane or the sale has another epoch than the caller's, or the sale other shards
--   RECOVERING  the lane isn't open on this server: it is recovering or lost, or was opened for another one
--
-- Cost: O(1) for each unit. May run any number of times, even after the user has claimed again: that claim has another
-- order id. Steps that can fail (the stock is no number) come before the buyers are touched. May run on a full Redis:
-- the script frees more memory than it takes.

local coupon, lane = KEYS[1], KEYS[2]
local coupon_id, epoch, shards, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local users, held_orders = {}, {}
for i = 5, #ARGV, 2 do users[#users + 1] = ARGV[i] end
for i, user in ipairs(users) do held_orders[i] = redis.call('HGET', KEYS[2 + i], user) end

local sale = redis.call('HMGET', coupon, 'state', 'epoch', 'shards')
local state, sale_epoch, sale_shards = sale[1], sale[2], sale[3]
local of_lane = redis.call('HMGET', lane, 'epoch', 'state', 'replid')
local replid = string.match(redis.call('INFO', 'replication'), 'role:master.-master_replid:(%x+)')

if of_lane[2] ~= 'open' or of_lane[3] ~= replid then return { 'RECOVERING' } end
if not state or state == 'loading' then return { 'NOT_LOADED' } end
if of_lane[1] ~= epoch or sale_epoch ~= epoch or sale_shards ~= shards then return { 'STALE' } end

-- Users whose unit is released, and the indexes of these units.
local gone, leaving = {}, {}

local function release(i, user, order)
  if held_orders[i] ~= order or gone[user] then return 'NOT_HELD' end
  gone[user], leaving[#leaving + 1] = true, i
  return 'RELEASED'
end

local replies = {}
for i, user in ipairs(users) do
  replies[i] = release(i, user, ARGV[4 + 2 * i])
end
if #leaving > 0 then
  redis.call('HINCRBY', coupon, 'restocks', 1)
  redis.call('HINCRBY', coupon, 'stock', #leaving)
  for _, i in ipairs(leaving) do redis.call('HDEL', KEYS[2 + i], users[i]) end
  redis.call('PUBLISH', channel, coupon_id)
end
return replies
