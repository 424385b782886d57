-- Counts one sale at one moment, for the law of conservation: total = stock + buyers.
--
-- KEYS[1]  coupon  HASH  the sale
-- KEYS[2]  buyers  HASH  user id -> order id
-- ARGV     none
--
-- Replies  total, stock, number of buyers, state, epoch; total, stock, state and epoch are nil
--          when there is no such sale
--
-- Cost: O(1); reads only.

local coupon, buyers = KEYS[1], KEYS[2]

local sale = redis.call('HMGET', coupon, 'total', 'stock', 'state', 'epoch')
local buyers_count = redis.call('HLEN', buyers)
return { sale[1], sale[2], buyers_count, sale[3], sale[4] }
