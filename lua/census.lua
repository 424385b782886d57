-- Counts one sale at one moment, for the law of conservation: total = stock + buyers.
--
-- KEYS[1]  coupon  HASH  the sale
-- KEYS[2]  buyers  HASH  user id -> order id
-- ARGV     none
--
-- Replies  number of buyers, total, stock, state, revision, epoch, opens_ms, closes_ms; all but the
--          first are nil when there is no such sale
--
-- Cost: O(1); reads only.

local coupon, buyers = KEYS[1], KEYS[2]

local sale = redis.call('HMGET', coupon,
  'total', 'stock', 'state', 'revision', 'epoch', 'opens_ms', 'closes_ms')
return { redis.call('HLEN', buyers), unpack(sale) }
