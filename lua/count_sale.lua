-- Counts one sale at one moment, for the law of conservation: total = stock + buyers.
--
-- KEYS[1]  coupon  HASH  the sale
-- KEYS[2..] all shards of its buyers; HASH, user id -> order id, and a sentinel in each
-- ARGV     none
--
-- Replies  number of buyers, number of missing shards, total, stock, state, revision, epoch, opens_ms, closes_ms,
--          returns, load; all but the first two are nil when there is no such sale
--
-- Cost: O(shards), however many buyers are in them. Reads only.

local coupon = KEYS[1]

local buyers, missing = 0, 0
for i = 2, #KEYS do
  local fields = redis.call('HLEN', KEYS[i])
  if fields == 0 then missing = missing + 1 else buyers = buyers + fields - 1 end
end
local sale = redis.call('HMGET', coupon,
  'total', 'stock', 'state', 'revision', 'epoch', 'opens_ms', 'closes_ms', 'restocks', 'load')
return { buyers, missing, unpack(sale) }
