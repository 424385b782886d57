#!lua flags=allow-oom
-- Gives units of one sale back: each only if its buyer still holds the order that was closed.
--
-- KEYS[1]  coupon  HASH  the sale
-- KEYS[2]  buyers  HASH  user id -> order id of the live claim
-- ARGV[1]  coupon id
-- ARGV[2]  epoch that the caller believes in
-- ARGV[3]  channel on which units that came back are told
-- ARGV[4..] user id, order id; as often as there are units
--
-- Replies  a list, one code for each unit
--   GIVEN_BACK  the user is no buyer any more, and the unit can be claimed
--   NOT_HELD    the user holds nothing by this order: it has come back before
--          or one code for all of them, and nothing has changed
--   NOT_LOADED  the sale isn't here
--   STALE       the caller's epoch or the hash's layout isn't ours
--
-- Cost: O(1) for each unit. Can be run any number of times, also when the user has claimed anew: that is
-- another order id. What can fail (a stock that is no number) comes before the buyers are touched. May run
-- on a full Redis: it frees more than it takes.

local coupon, buyers = KEYS[1], KEYS[2]
local coupon_id, epoch, channel = ARGV[1], ARGV[2], ARGV[3]

local users = {}
for i = 4, #ARGV, 2 do users[#users + 1] = ARGV[i] end

local sale = redis.call('HMGET', coupon, 'state', 'epoch', 'layout')
local state, sale_epoch, layout = sale[1], sale[2], sale[3]
local held_orders = redis.call('HMGET', buyers, unpack(users))

if not state or state == 'loading' then return { 'NOT_LOADED' } end
if sale_epoch ~= epoch or layout ~= '1' then return { 'STALE' } end

-- Users whose unit comes back: in a row, as HDEL takes them, and by name.
local leaving, gone = {}, {}

local function give_back(user, order, held_order)
  if held_order ~= order or gone[user] then return 'NOT_HELD' end
  leaving[#leaving + 1], gone[user] = user, true
  return 'GIVEN_BACK'
end

local replies = {}
for i, user in ipairs(users) do
  replies[i] = give_back(user, ARGV[3 + 2 * i], held_orders[i])
end
if #leaving > 0 then
  redis.call('HINCRBY', coupon, 'returns', 1)
  redis.call('HINCRBY', coupon, 'stock', #leaving)
  redis.call('HDEL', buyers, unpack(leaving))
  redis.call('PUBLISH', channel, coupon_id)
end
return replies
