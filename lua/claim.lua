-- Decides claims on one flash coupon: may each of these users have a unit?
--
-- KEYS[1]  coupon  HASH    window, stock, state, epoch and shards
-- KEYS[2]  lane    HASH    epoch, state and replication ID of the lane, number of orders ever accepted in it, and the
--                          second of its last order ids, with the number of ids made in that second
-- KEYS[3]  log     STREAM  the order log of the lane
-- KEYS[4]  unpaid  HASH    user id -> ids of the user's unpaid orders in the lane, separated by spaces
-- KEYS[5..] for each claim the shard of its user; HASH, user id -> order id of the live claim
-- ARGV[1]  coupon id
-- ARGV[2]  number of the lane
-- ARGV[3]  epoch of the lane, as the caller knows it
-- ARGV[4]  1 if the backlog has room for more orders, 0 if it hasn't
-- ARGV[5]  unpaid orders that a user may hold in the lane; 0 for no bound, and `unpaid` isn't touched
-- ARGV[6]  shards of the sale, as the caller knows them
-- ARGV[7..] user id of each claim
--
-- Replies  a list: one string with a letter for each claim; a number, or ''; the order id of the first A, or ''; then
--          the order id of each D
--   A  accepted         took a unit, remembered the buyer, appended to the log; ids of one call are consecutive
--   D  already claimed  even if the sale is paused, ended or sold out by now; the order id is that of the live claim
--   N  not started      the number is the time until the sale opens, in ms
--   P  paused
--   E  ended
--   S  sold out         the number counts how often units were added: until it changes, no user becomes a buyer
--   U  too many unpaid  would be accepted, but the user holds as many unpaid orders as allowed
--   O  overloaded       would be accepted, but the backlog has no room
--   X  lost             the user's shard lacks its sentinel: Redis has lost data
--          or one letter for all claims, and nothing has changed
--   L  not loaded       the sale isn't loaded (yet): ask coupon/load.rs
--   T  stale            the lane or the sale has another epoch than the caller's
--   V  recovering       the lane is closed until Redis has been compared with Postgres, or was opened for another
--                       server (its replication ID differs), or was lost; or the log was lost, or is a key of
--                       another type; or no order id can carry the time (2022 to 2090)
--   R  resharded        the sale has other shards than the caller's, which the number names: ask again
--   X  lost             the sale lacks its stock: Redis has lost data
--
-- Cost: O(1) for each claim, as long as its shard is small. No key is built here, and the clock is this server's.
-- Everything that can fail is read or checked before the first write, the append to the log. On a full Redis the append
-- fails, and nothing has changed; once it has succeeded, Redis lets the other writes of the script through. Only the
-- first call of a lane begins its log: a log that is missing later was lost with its orders, and a new one would hide
-- that. Each claim is decided as if the claims before it in the call had been written, because two may be of one user
-- or one shard. The sentinel is the field '-', which each shard has from the load on: it tells an empty shard from a
-- lost one. `unpack` is safe for the claims of a call, which `base/limits.rs` bounds.
--
-- An order id has 31 bits of seconds since 2022, 6 of the lane, 6 of the epoch, and 20 of a counter that begins anew
-- with each second and carries into the next one. So the ids of a lane rise whatever this server's clock does, and none
-- is made twice; `open_lane.lua` begins above all ids that were seen. Numbers are doubles here, exact up to 2^53, and
-- `%.0f` of a larger one rounds: an id is put together from two decimal halves.

local coupon, lane, log, unpaid = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local coupon_id, lane_number, epoch, has_room = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
local unpaid_max, believed_shards, claims = tonumber(ARGV[5]), ARGV[6], #ARGV - 6

local sale = redis.call('HMGET', coupon,
  'opens_ms', 'closes_ms', 'stock', 'state', 'epoch', 'revision', 'shards', 'restocks')
local opens_ms, closes_ms, stock = tonumber(sale[1]), tonumber(sale[2]), tonumber(sale[3])
local state, sale_epoch, revision = sale[4], sale[5], sale[6]
local shards, restocks = sale[7] or '', sale[8] or '0'
local of_lane = redis.call('HMGET', lane, 'epoch', 'state', 'accepted', 'second', 'used', 'replid')
local lane_epoch, accepted_before = of_lane[1], tonumber(of_lane[3] or 0)
local replid = string.match(redis.call('INFO', 'replication'), 'role:master.-master_replid:(%x+)')
local is_open = of_lane[2] == 'open' and of_lane[6] == replid
local function answer_all(letter, number) return { string.rep(letter, claims), number or '', '' } end

local log_type = redis.call('TYPE', log).ok
local has_log = log_type == 'stream' or (log_type == 'none' and accepted_before == 0)
if not is_open or not has_log then return answer_all('V') end
if not state or state == 'loading' then return answer_all('L') end
if lane_epoch ~= epoch or sale_epoch ~= epoch then return answer_all('T') end
if shards ~= believed_shards then return answer_all('R', shards) end
if not stock then return answer_all('X') end

local users, in_shard = {}, {}
for i = 1, claims do
  users[i] = ARGV[6 + i]
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
local letters = {}
-- The indexes of the accepted claims; the place of each user among them; and for each D its order id, or such a place.
local accepted, place_of, repeats = {}, {}, {}

local function decide(i, user)
  local sentinel, held = in_shard[i][1], in_shard[i][2] or place_of[user]
  if not sentinel then return 'X' end
  if held then
    repeats[#repeats + 1] = held
    return 'D'
  end
  if letter_of_closed then return letter_of_closed end
  if stock < 1 then return 'S' end
  if unpaid_orders[i] and select(2, string.gsub(unpaid_orders[i], '%d+', '')) >= unpaid_max then return 'U' end
  if not has_room then return 'O' end
  stock = stock - 1
  place_of[user], accepted[#accepted + 1] = #accepted, i
  return 'A'
end

-- Makes `count` ids that follow the last ones of a lane. Returns the second of the new ids, the counter after them, and
-- a function from an index (from 0) to the id; nothing if no id can carry the time. From second 3 on, both halves have
-- digits.
local function next_ids(now, second, used, number_of_lane, number_of_epoch, count)
  if now > second then second, used = now, 0 end
  if used + count > 1048576 then second, used = second + 1, 0 end
  if second < 3 or second > 2147483647 then return end
  local digits = string.format('%020.0f', second * 4294967296)
  local below = number_of_lane * 67108864 + number_of_epoch % 64 * 1048576 + used
  local head, tail = tonumber(string.sub(digits, 1, 10)), tonumber(string.sub(digits, 11)) + below
  local function id(place)
    local carry = tail + place >= 1e10 and 1 or 0
    return string.format('%.0f%010.0f', head + carry, tail + place - carry * 1e10)
  end
  return second, used + count, id
end

for i = 1, claims do letters[i] = decide(i, users[i]) end
letters = table.concat(letters)
local number = string.find(letters, 'N', 1, true) and string.format('%d', opens_ms - now_ms) or restocks
if #accepted == 0 then return { letters, number, '', unpack(repeats) } end
local second, used, id = next_ids(time[1] - 1640995200, tonumber(of_lane[4] or 0), tonumber(of_lane[5] or 0),
  tonumber(lane_number), tonumber(epoch), #accepted)
if not second then return answer_all('V') end

local buyers = {}
for n, i in ipairs(accepted) do buyers[n] = users[i] end
redis.call('XADD', log, '*', 'coupon', coupon_id, 'revision', revision, 'epoch', epoch,
  'first', string.format('%d', accepted_before + 1), 'order', id(0), 'users', table.concat(buyers, ' '))
redis.call('HSET', lane, 'accepted', string.format('%d', accepted_before + #accepted),
  'second', string.format('%d', second), 'used', string.format('%d', used))
redis.call('HINCRBY', coupon, 'stock', -#accepted)
local now_unpaid = {}
for n, i in ipairs(accepted) do
  local order, before = id(n - 1), unpaid_orders[i]
  redis.call('HSET', KEYS[4 + i], users[i], order)
  now_unpaid[2 * n - 1], now_unpaid[2 * n] = users[i], before and table.concat({ before, order }, ' ') or order
end
if unpaid_max > 0 then redis.call('HSET', unpaid, unpack(now_unpaid)) end
for n, held in ipairs(repeats) do repeats[n] = type(held) == 'number' and id(held) or held end
return { letters, number, id(0), unpack(repeats) }
