-- Decides claims on one flash coupon: may each of these users have a unit?
--
-- KEYS[1]  coupon  HASH    window, stock, state, epoch and layout of the sale
-- KEYS[2]  buyers  HASH    user id -> order id of the live claim
-- KEYS[3]  log     STREAM  the order log of the lane
-- ARGV[1]  coupon id
-- ARGV[2]  epoch that the caller believes in
-- ARGV[3]  1 if the backlog has room for more orders, 0 if it hasn't
-- ARGV[4..] user id, order id; as often as there are claims
--
-- Replies  a flat list, two strings for each claim: a code and its detail
--   ACCEPTED         order id          took a unit, remembered the buyer, appended to the log
--   ALREADY_CLAIMED  first order id    also after the sale was paused, ended or sold out
--   NOT_STARTED      ms until it opens
--   PAUSED           ''
--   ENDED            ''
--   SOLD_OUT         ''
--   OVERLOADED       ''                would be accepted, but the backlog has no room
--   NOT_LOADED       ''                the sale isn't here (yet): ask sale/warm_up
--   STALE            ''                the caller's epoch or the hash's layout isn't ours
--   LOST             ''                total is not stock + buyers: Redis has lost data
--
-- Cost: O(1) for each claim. No key is built here, and the clock is this server's.
-- What can fail comes first: both hashes are read before anything is written, and the append to
-- the log (the only write that a full memory or a wrong type can stop) precedes the other writes.

local coupon, buyers, log = KEYS[1], KEYS[2], KEYS[3]
local coupon_id, epoch, has_room = ARGV[1], ARGV[2], ARGV[3] == '1'

local sale = redis.call('HMGET', coupon,
  'opens_ms', 'closes_ms', 'stock', 'total', 'state', 'epoch', 'layout')
local opens_ms, closes_ms = tonumber(sale[1]), tonumber(sale[2])
local stock, total = tonumber(sale[3]), tonumber(sale[4])
local state, sale_epoch, layout = sale[5], sale[6], sale[7]
local buyers_count = redis.call('HLEN', buyers)
local conserved = stock and total == stock + buyers_count
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local function claim(user, order)
  if not state or state == 'loading' then return 'NOT_LOADED', '' end
  if sale_epoch ~= epoch or layout ~= '1' then return 'STALE', '' end
  if not conserved then return 'LOST', '' end

  local first_order = redis.call('HGET', buyers, user)
  if first_order then return 'ALREADY_CLAIMED', first_order end
  if state == 'ended' or now_ms >= closes_ms then return 'ENDED', '' end
  if state == 'paused' then return 'PAUSED', '' end
  if now_ms < opens_ms then return 'NOT_STARTED', string.format('%d', opens_ms - now_ms) end
  if stock < 1 then return 'SOLD_OUT', '' end
  if not has_room then return 'OVERLOADED', '' end

  redis.call('XADD', log, '*', 'coupon', coupon_id, 'user', user, 'order', order)
  redis.call('HSET', buyers, user, order)
  stock = redis.call('HINCRBY', coupon, 'stock', -1)
  return 'ACCEPTED', order
end

local replies = {}
for i = 4, #ARGV, 2 do
  replies[#replies + 1], replies[#replies + 2] = claim(ARGV[i], ARGV[i + 1])
end
return replies
