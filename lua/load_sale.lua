-- Loads a sale, not yet open to claims, and without the shards of its buyers.
--
-- KEYS[1]  coupon  HASH  the sale, as the claim script reads it
-- KEYS[2]  lane    HASH  epoch, state and replication ID of the lane
-- ARGV[1]  load id, new for each attempt
-- ARGV[2]  opens_ms
-- ARGV[3]  closes_ms
-- ARGV[4]  total, which is also the first stock
-- ARGV[5]  revision
-- ARGV[6]  epoch
-- ARGV[7]  number of shards
-- ARGV[8]  state that the sale will open in: active, paused or ended
--
-- Replies  a code, and load id and shards of the sale that is there now
--   LOADING  the load is the caller's, or an earlier one that has not been opened yet
--   OPEN     an earlier load has been opened; nothing has changed. It is ours if Postgres has noted it
--   CLOSED   the lane isn't open on this server under the caller's epoch; with '' and ''
--
-- Cost: O(1). The sale begins in state 'loading', in which the claim script replies that it isn't loaded. Only
-- open_sale.lua ends that state, after Postgres has noted the load. So wherever the load breaks off, no claim can
-- precede that note. A load that broke off under an older epoch is done again.

local coupon, lane = KEYS[1], KEYS[2]
local load_id, opens_ms, closes_ms, total, revision, epoch, shards, opens_as =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]

local of_lane = redis.call('HMGET', lane, 'epoch', 'state', 'replid')
local replid = string.match(redis.call('INFO', 'replication'), 'role:master.-master_replid:(%x+)')
if of_lane[2] ~= 'open' or of_lane[3] ~= replid or of_lane[1] ~= epoch then return { 'CLOSED', '', '' } end
local present = redis.call('HMGET', coupon, 'state', 'epoch')
if not present[1] or (present[1] == 'loading' and present[2] ~= epoch) then
  redis.call('HSET', coupon,
    'opens_ms', opens_ms, 'closes_ms', closes_ms, 'stock', total, 'total', total,
    'state', 'loading', 'opens_as', opens_as, 'load', load_id,
    'revision', revision, 'epoch', epoch, 'shards', shards)
end
local now = redis.call('HMGET', coupon, 'state', 'load', 'shards')
return { now[1] == 'loading' and 'LOADING' or 'OPEN', now[2], now[3] }
