-- Decides claims on one flash coupon: may each of these users have a unit?
--
-- KEYS[1]  coupon  HASH    window, stock, state, epoch, layout and shards
-- KEYS[2]  lane    HASH    epoch and state of the lane, and number of orders that were ever promised in it
-- KEYS[3]  log     STREAM  the order log of the lane
-- KEYS[4]  unpaid  HASH    user id -> order ids of their unpaid orders in the lane, a space between two
-- KEYS[5..] for each claim the shard of its user; HASH, user id -> order id of the live claim
-- ARGV[1]  coupon id
-- ARGV[2]  epoch that the caller believes in
-- ARGV[3]  1 if the backlog has room for more orders, 0 if it hasn't
-- ARGV[4]  unpaid orders that a user may hold in the lane; 0 for no bound, and `unpaid` isn't touched
-- ARGV[5]  shards that the caller believes in
-- ARGV[6]  layout of `log`: calls, or claims for the log that older versions read
-- ARGV[7..] user id, order id; as often as there are claims
--
-- Replies  a list: a letter for each claim, in one string; a number, or ''; and for each D its order id
--   A  accepted         took a unit, remembered the buyer, appended to the log
--   D  already claimed  also after the sale was paused, ended or sold out; the order id is that of the live claim
--   N  not started      the number is the time until the sale opens, in ms
--   P  paused
--   E  ended
--   S  sold out         the number counts additions of units: while it stays, no further user can be a buyer
--   U  too many unpaid  would be accepted, but the user holds as many unpaid orders as they may
--   O  overloaded       would be accepted, but the backlog has no room
--          or one letter for all of them, and nothing has changed
--   L  not loaded       the sale isn't loaded (yet): ask sale/coupon/load.rs
--   T  stale            the lane or the sale has another epoch than the caller's, or the sale another layout
--   V  recovering       the lane is closed until Redis has been compared with Postgres; or it was lost, or its log, or
--                       the log is a key of another type
--   R  resharded        the caller has other shards than these: ask again
--   C  calls            the lane has begun a log of calls: ask again, with that log
--   X  lost             the shard lacks its sentinel, or the sale its stock: Redis has lost data
--
-- Cost: O(1) for each claim, as long as its shard is small. No key is built here, and the clock is this server's. All
-- hashes, and the type of the log, are read before the first write, which is the append to the log. Only the first call
-- of a lane begins its log: one that is missing later was lost with its orders, and a new one would hide that. A full
-- memory stops the first write. Each claim is decided as if those before it in the call had been written; two may be of
-- one user, or of one shard. The sentinel is the field '-', which each shard has from the load on, so a missing shard
-- differs from an empty one. Ids are never reckoned with: numbers are doubles here, and ids are too large for them.

local coupon, lane, log, unpaid = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local coupon_id, epoch, has_room, unpaid_max = ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])
local believed_shards, log_layout, claims = ARGV[5], ARGV[6], (#ARGV - 6) / 2

local sale = redis.call('HMGET', coupon,
  'opens_ms', 'closes_ms', 'stock', 'state', 'epoch', 'layout', 'shards', 'returns', 'revision')
local opens_ms, closes_ms, stock = tonumber(sale[1]), tonumber(sale[2]), tonumber(sale[3])
local state, sale_epoch, layout, revision = sale[4], sale[5], sale[6], sale[9] or '0'
local shards, additions = sale[7] or '', sale[8] or '0'
local lane_epoch, lane_state, promised = unpack(redis.call('HMGET', lane, 'epoch', 'state', 'promised'))
local function answer_all(letter, number) return { string.rep(letter, claims), number or '' } end

local log_type, needs_log = redis.call('TYPE', log).ok, log_layout == 'calls' and promised and promised ~= '0'
if lane_state ~= 'open' or (log_type ~= 'stream' and (log_type ~= 'none' or needs_log)) then return answer_all('V') end
if not state or state == 'loading' then return answer_all('L') end
if lane_epoch ~= epoch or sale_epoch ~= epoch or (layout ~= '2' and layout ~= '3') then return answer_all('T') end
if shards ~= believed_shards then return answer_all('R', shards) end
if not stock then return answer_all('X') end
if promised and log_layout ~= 'calls' then return answer_all('C') end

local users, orders, in_shard = {}, {}, {}
for i = 1, claims do
  users[i], orders[i] = ARGV[5 + 2 * i], ARGV[6 + 2 * i]
  in_shard[i] = redis.call('HMGET', KEYS[4 + i], '-', users[i])
end
local unpaid_orders = unpaid_max > 0 and redis.call('HMGET', unpaid, unpack(users)) or {}
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- The answer to users who hold no unit; nil while units are on sale.
local function closed()
  if state == 'ended' or now_ms >= closes_ms then return 'E' end
  if state == 'paused' then return 'P' end
  if now_ms < opens_ms then return 'N' end
end
local letter_of_closed = closed()
local number = letter_of_closed == 'N' and string.format('%d', opens_ms - now_ms) or additions
local replies, letters = { '', number }, {}
-- By users who got a unit in this call; and the numbers of their claims.
local order_of, accepted = {}, {}

local function decide(i, user)
  local sentinel, first_order = in_shard[i][1], in_shard[i][2] or order_of[user]
  if not sentinel then return 'X' end
  if first_order then
    replies[#replies + 1] = first_order
    return 'D'
  end
  if letter_of_closed then return letter_of_closed end
  if stock < 1 then return 'S' end
  if unpaid_orders[i] and select(2, string.gsub(unpaid_orders[i], '%d+', '')) >= unpaid_max then return 'U' end
  if not has_room then return 'O' end
  stock = stock - 1
  order_of[user], accepted[#accepted + 1] = orders[i], i
  return 'A'
end

for i = 1, claims do letters[i] = decide(i, users[i]) end
replies[1] = table.concat(letters)
if #accepted == 0 then return replies end
if log_layout == 'calls' then
  local words = {}
  for n, i in ipairs(accepted) do words[2 * n - 1], words[2 * n] = users[i], orders[i] end
  redis.call('XADD', log, '*', 'coupon', coupon_id, 'revision', revision, 'epoch', epoch,
    'first', string.format('%d', (promised or 0) + 1), 'claims', table.concat(words, ' '))
  redis.call('HINCRBY', lane, 'promised', #accepted)
else
  for _, i in ipairs(accepted) do
    redis.call('XADD', log, '*', 'coupon', coupon_id, 'user', users[i], 'order', orders[i])
  end
end
redis.call('HINCRBY', coupon, 'stock', -#accepted)
local now_unpaid = {}
for n, i in ipairs(accepted) do
  local before = unpaid_orders[i]
  redis.call('HSET', KEYS[4 + i], users[i], orders[i])
  now_unpaid[2 * n - 1], now_unpaid[2 * n] = users[i], before and table.concat({ before, orders[i] }, ' ') or orders[i]
end
if unpaid_max > 0 then redis.call('HSET', unpaid, unpack(now_unpaid)) end
return replies
