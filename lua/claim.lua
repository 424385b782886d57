-- Decides claims on one flash coupon: may each of these users have a unit?
--
-- KEYS[1]  coupon  HASH    window, stock, state, epoch, layout and number of shards of the sale
-- KEYS[2]  log     STREAM  the order log of the lane
-- KEYS[3]  unpaid  HASH    user id -> order ids of their unpaid orders in the lane, a space between two
-- KEYS[4..] for each claim the shard of its user; HASH, user id -> order id of the live claim
-- ARGV[1]  coupon id
-- ARGV[2]  epoch that the caller believes in
-- ARGV[3]  1 if the backlog has room for more orders, 0 if it hasn't
-- ARGV[4]  unpaid orders that a user may hold in the lane; 0 for no bound, and `unpaid` isn't touched
-- ARGV[5]  number of shards that the caller believes in
-- ARGV[6..] user id, order id; as often as there are claims
--
-- Replies  a flat list, two strings for each claim: a code and its detail
--   ACCEPTED         order id          took a unit, remembered the buyer, appended to the log
--   ALREADY_CLAIMED  first order id    also after the sale was paused, ended or sold out
--   NOT_STARTED      ms until it opens
--   PAUSED           ''
--   ENDED            ''
--   SOLD_OUT         count             of additions of units: while it stays, no further user can be a buyer
--   TOO_MANY_UNPAID  ''                would be accepted, but the user holds as many unpaid orders as they may
--   OVERLOADED       ''                would be accepted, but the backlog has no room
--   NOT_LOADED       ''                the sale isn't loaded (yet): ask sale/coupon/load.rs
--   STALE            ''                the sale has another epoch than the caller's, or another layout
--   RESHARDED        number of shards  the caller has another number, and so named the wrong keys: ask again
--   LOST             ''                the shard lacks its sentinel, or the sale its stock: Redis has lost data
--
-- Cost: O(1) for each claim, as long as its shard is small. No key is built here, and the clock is this server's. All
-- hashes are read before the first write, and the appends to the log (the only writes that a full memory or a wrong
-- type can stop, and then the first one is stopped) precede the other writes. Each claim is decided as if those
-- before it in the call had been written; two may be of one user, or of one shard. The sentinel is the field '-',
-- which each shard has from the load on, so a missing shard differs from an empty one.

local coupon, log, unpaid = KEYS[1], KEYS[2], KEYS[3]
local coupon_id, epoch, has_room, unpaid_max = ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])
local shards = ARGV[5]

local users, in_shard = {}, {}
for i = 6, #ARGV, 2 do users[#users + 1] = ARGV[i] end
for i, user in ipairs(users) do in_shard[i] = redis.call('HMGET', KEYS[3 + i], '-', user) end

local sale = redis.call('HMGET', coupon,
  'opens_ms', 'closes_ms', 'stock', 'state', 'epoch', 'layout', 'shards', 'returns')
local opens_ms, closes_ms, stock = tonumber(sale[1]), tonumber(sale[2]), tonumber(sale[3])
local state, sale_epoch, layout, sale_shards, additions = sale[4], sale[5], sale[6], sale[7], sale[8] or '0'
local unpaid_orders = unpaid_max > 0 and redis.call('HMGET', unpaid, unpack(users)) or {}
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- By users who got a unit in this call; and the numbers of their claims.
local order_of, accepted = {}, {}

local function claim(i, user, order)
  if not state or state == 'loading' then return 'NOT_LOADED', '' end
  if sale_epoch ~= epoch or layout ~= '2' then return 'STALE', '' end
  if sale_shards ~= shards then return 'RESHARDED', sale_shards end
  local sentinel, first_order = unpack(in_shard[i])
  if not sentinel or not stock then return 'LOST', '' end

  first_order = first_order or order_of[user]
  if first_order then return 'ALREADY_CLAIMED', first_order end
  if state == 'ended' or now_ms >= closes_ms then return 'ENDED', '' end
  if state == 'paused' then return 'PAUSED', '' end
  if now_ms < opens_ms then return 'NOT_STARTED', string.format('%d', opens_ms - now_ms) end
  if stock < 1 then return 'SOLD_OUT', additions end
  if unpaid_orders[i] and select(2, string.gsub(unpaid_orders[i], '%d+', '')) >= unpaid_max then
    return 'TOO_MANY_UNPAID', ''
  end
  if not has_room then return 'OVERLOADED', '' end

  redis.call('XADD', log, '*', 'coupon', coupon_id, 'user', user, 'order', order)
  stock = stock - 1
  order_of[user] = order
  accepted[#accepted + 1] = i
  return 'ACCEPTED', order
end

local replies = {}
for i, user in ipairs(users) do
  replies[2 * i - 1], replies[2 * i] = claim(i, user, ARGV[5 + 2 * i])
end
if #accepted > 0 then redis.call('HINCRBY', coupon, 'stock', -#accepted) end
for _, i in ipairs(accepted) do
  local user, order, before = users[i], order_of[users[i]], unpaid_orders[i]
  redis.call('HSET', KEYS[3 + i], user, order)
  if unpaid_max > 0 then
    redis.call('HSET', unpaid, user, before and table.concat({ before, order }, ' ') or order)
  end
end
return replies
