#!lua flags=allow-oom
-- Passes places of one sale on: each from a buyer whose claim was given up to the buyer of a live order.
--
-- KEYS[1]  coupon  HASH  the sale
-- KEYS[2]  lane    HASH  epoch and state of the lane
-- KEYS[3..] for each place the shard of its buyer and the shard of its heir; HASH, user id -> order id of the live claim
-- ARGV[1]  coupon id
-- ARGV[2]  epoch that the caller believes in
-- ARGV[3]  shards that the caller believes in
-- ARGV[4]  channel on which units that came back are told
-- ARGV[5..] user id, order id, user id and order id of the heir; as often as there are places. Without a user id
--          there is no heir: the place ends
--
-- Replies  a list, one code for each place
--   PASSED_ON  the user is no buyer any more, and the heir is one; no unit has come or gone
--   NOT_HELD   the user holds no unit by this order: the place has been passed on before
--   TAKEN      the heir is a buyer already, and nothing has changed
--          or one code for all of them, and nothing has changed
--   NOT_LOADED  the sale isn't loaded
--   STALE       the lane or the sale has another epoch than the caller's, or the sale other shards
--   RECOVERING  the lane is closed until Redis has been compared with Postgres, or has been lost
--   LOST        a shard lacks its sentinel: Redis has lost data
--
-- Cost: O(1) for each place. May run any number of times. All hashes are read before the first write, so no error can
-- fall between two writes. The heir of a place may be its own user, by another order. May run on a full Redis.

local coupon, lane = KEYS[1], KEYS[2]
local coupon_id, epoch, shards, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local places, lost = {}, false
for i = 5, #ARGV, 4 do
  local at = 2 * #places + 3
  local place = { at = at, user = ARGV[i], order = ARGV[i + 1], heir = ARGV[i + 2], heirs_order = ARGV[i + 3] }
  local from = redis.call('HMGET', KEYS[at], '-', place.user)
  local to = redis.call('HMGET', KEYS[at + 1], '-', place.heir)
  lost = lost or not from[1] or not to[1]
  place.held, place.heir_holds = from[2], to[2]
  places[#places + 1] = place
end

local sale = redis.call('HMGET', coupon, 'state', 'epoch', 'shards')
local state, sale_epoch, sale_shards = sale[1], sale[2], sale[3]
local of_lane = redis.call('HMGET', lane, 'epoch', 'state')

if of_lane[2] ~= 'open' then return { 'RECOVERING' } end
if not state or state == 'loading' then return { 'NOT_LOADED' } end
if of_lane[1] ~= epoch or sale_epoch ~= epoch or sale_shards ~= shards then return { 'STALE' } end
if lost then return { 'LOST' } end

-- Users that have left in this call, and those that have come.
local gone, come, passed_on = {}, {}, {}

local function pass_on(place)
  if place.held ~= place.order or gone[place.user] then return 'NOT_HELD' end
  if come[place.heir] or (place.heir_holds and place.heir ~= place.user) then return 'TAKEN' end
  gone[place.user], passed_on[#passed_on + 1] = true, place
  if place.heir ~= '' then come[place.heir] = true end
  return 'PASSED_ON'
end

local replies = {}
for i, place in ipairs(places) do replies[i] = pass_on(place) end
-- A process that remembers the sale as sold out reads its buyers anew.
if #passed_on > 0 then redis.call('HINCRBY', coupon, 'returns', 1) end
for _, place in ipairs(passed_on) do
  redis.call('HDEL', KEYS[place.at], place.user)
  if place.heir ~= '' then redis.call('HSET', KEYS[place.at + 1], place.heir, place.heirs_order) end
end
if #passed_on > 0 then redis.call('PUBLISH', channel, coupon_id) end
return replies
