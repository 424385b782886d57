-- Replaces a sale by one that was built from Postgres, with its own shards of buyers.
--
-- KEYS[1]  lane    HASH  epoch and state of the lane
-- KEYS[2]  coupon  HASH  the sale
-- KEYS[3..] its old shards, which are removed
-- ARGV[1]  epoch of the recovery
-- ARGV[2]  opens_ms
-- ARGV[3]  closes_ms
-- ARGV[4]  stock
-- ARGV[5]  total
-- ARGV[6]  state: active, paused or ended
-- ARGV[7]  id of the load that Postgres has noted
-- ARGV[8]  revision
-- ARGV[9]  the new shards
--
-- Replies  SWITCHED  the sale is the one that was built
--          FENCED    another recovery has begun, or this one is over; nothing has changed
--
-- Cost: O(shards named here); their memory is freed in the background. The new shards are complete before this call,
-- and no claim can have come in between, because the lane is recovering. The names of the new shards carry the epoch,
-- which keeps the shards of two recoveries apart.

local lane, coupon = KEYS[1], KEYS[2]
local epoch, opens_ms, closes_ms, stock, total = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local state, load_id, revision, shards = ARGV[6], ARGV[7], ARGV[8], ARGV[9]

local facts = redis.call('HMGET', lane, 'epoch', 'state')
if facts[1] ~= epoch or facts[2] ~= 'recovering' then return 'FENCED' end
-- A key of another type is replaced, too.
local before = redis.pcall('HMGET', coupon, 'restocks')
-- Processes that remember the sale as sold out read its buyers anew.
local restocks = string.format('%d', (tonumber(before[1]) or 0) + 1)
redis.call('DEL', coupon)
redis.call('HSET', coupon,
  'opens_ms', opens_ms, 'closes_ms', closes_ms, 'stock', stock, 'total', total,
  'state', state, 'opens_as', state, 'load', load_id, 'restocks', restocks,
  'revision', revision, 'epoch', epoch, 'shards', shards)
for i = 3, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 'SWITCHED'
