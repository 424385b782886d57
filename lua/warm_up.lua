-- Puts a sale into Redis for the first time, not yet open to claims.
--
-- KEYS[1]  coupon  HASH  the sale, as the claim script reads it
-- ARGV[1]  opens_ms
-- ARGV[2]  closes_ms
-- ARGV[3]  total, which is also the first stock
-- ARGV[4]  revision
-- ARGV[5]  epoch
--
-- Replies  WRITTEN  it is there now, in state 'loading': claims are told NOT_LOADED
--          PRESENT  it was there already and has not been touched
--
-- Cost: O(1). The state 'loading' is left only by open_sale.lua, after Postgres has noted that this
-- sale is in Redis. So whatever dies in between, no claim can have come before that note.

local coupon = KEYS[1]
local opens_ms, closes_ms, total, revision, epoch = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

if redis.call('EXISTS', coupon) == 1 then return 'PRESENT' end

redis.call('HSET', coupon,
  'opens_ms', opens_ms, 'closes_ms', closes_ms, 'stock', total, 'total', total,
  'state', 'loading', 'revision', revision, 'epoch', epoch, 'layout', '1')
return 'WRITTEN'
