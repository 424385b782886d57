-- Decides claims on one flash coupon: may each of these users have a unit?
--
-- KEYS[1]  coupon  HASH    window, stock, state, epoch and layout of the sale
-- KEYS[2]  buyers  HASH    user id -> order id of the live claim
-- KEYS[3]  log     STREAM  the order log of the lane
-- KEYS[4]  unpaid  HASH    user id -> order ids of their unpaid orders in the lane, a space between two
-- ARGV[1]  coupon id
-- ARGV[2]  epoch that the caller believes in
-- ARGV[3]  1 if the backlog has room for more orders, 0 if it hasn't
-- ARGV[4]  unpaid orders that a user may hold in the lane; 0 for no bound, and `unpaid` isn't touched
-- ARGV[5..] user id, order id; as often as there are claims
--
-- Replies  a flat list, two strings for each claim: a code and its detail
--   ACCEPTED         order id          took a unit, remembered the buyer, appended to the log
--   ALREADY_CLAIMED  first order id    also after the sale was paused, ended or sold out
--   NOT_STARTED      ms until it opens
--   PAUSED           ''
--   ENDED            ''
--   SOLD_OUT         returns           how often units have come back: while that stays, nobody new can be a buyer
--   TOO_MANY_UNPAID  ''                would be accepted, but the user holds as many unpaid orders as they may
--   OVERLOADED       ''                would be accepted, but the backlog has no room
--   NOT_LOADED       ''                the sale isn't here (yet): ask sale/warm_up
--   STALE            ''                the caller's epoch or the hash's layout isn't ours
--   LOST             ''                total is not stock + buyers: Redis has lost data
--
-- Cost: O(1) for each claim. No key is built here, and the clock is this server's.
-- What can fail comes first: both hashes are read before anything is written, and the appends to the
-- log (the only writes that a full memory or a wrong type can stop, and then the first one does) precede
-- the other writes. Each claim is decided as if those before it in the call had been written.

local coupon, buyers, log, unpaid = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local coupon_id, epoch, has_room, unpaid_max = ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])

local users = {}
for i = 5, #ARGV, 2 do users[#users + 1] = ARGV[i] end

local sale = redis.call('HMGET', coupon,
  'opens_ms', 'closes_ms', 'stock', 'total', 'state', 'epoch', 'layout', 'returns')
local opens_ms, closes_ms = tonumber(sale[1]), tonumber(sale[2])
local stock, total = tonumber(sale[3]), tonumber(sale[4])
local state, sale_epoch, layout, returns = sale[5], sale[6], sale[7], sale[8] or '0'
local first_orders = redis.call('HMGET', buyers, unpack(users))
local unpaid_orders = unpaid_max > 0 and redis.call('HMGET', unpaid, unpack(users)) or {}
local conserved = stock and total == stock + redis.call('HLEN', buyers)
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- By users who got a unit in this call; and both in a row, as HSET takes them.
local order_of, taken = {}, {}

local function claim(user, order, first_order, unpaid_before)
  if not state or state == 'loading' then return 'NOT_LOADED', '' end
  if sale_epoch ~= epoch or layout ~= '1' then return 'STALE', '' end
  if not conserved then return 'LOST', '' end

  first_order = first_order or order_of[user]
  if first_order then return 'ALREADY_CLAIMED', first_order end
  if state == 'ended' or now_ms >= closes_ms then return 'ENDED', '' end
  if state == 'paused' then return 'PAUSED', '' end
  if now_ms < opens_ms then return 'NOT_STARTED', string.format('%d', opens_ms - now_ms) end
  if stock < 1 then return 'SOLD_OUT', returns end
  if unpaid_before and select(2, string.gsub(unpaid_before, '%d+', '')) >= unpaid_max then
    return 'TOO_MANY_UNPAID', ''
  end
  if not has_room then return 'OVERLOADED', '' end

  redis.call('XADD', log, '*', 'coupon', coupon_id, 'user', user, 'order', order)
  stock = stock - 1
  order_of[user] = order
  taken[#taken + 1], taken[#taken + 2] = user, order
  return 'ACCEPTED', order
end

local replies = {}
for i, user in ipairs(users) do
  replies[2 * i - 1], replies[2 * i] = claim(user, ARGV[4 + 2 * i], first_orders[i], unpaid_orders[i])
end
if #taken > 0 then
  redis.call('HSET', buyers, unpack(taken))
  redis.call('HINCRBY', coupon, 'stock', -#taken / 2)
end
if unpaid_max > 0 then
  for i, user in ipairs(users) do
    local before, order = unpaid_orders[i], order_of[user]
    if order then redis.call('HSET', unpaid, user, before and table.concat({ before, order }, ' ') or order) end
  end
end
return replies
