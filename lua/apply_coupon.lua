#!lua flags=allow-oom
-- Brings a sale up to a newer revision of its coupon.
--
-- KEYS[1]  coupon  HASH  the sale, as the claim script reads it
-- KEYS[2]  lane    HASH  epoch, state and replication ID of the lane
-- ARGV[1]  coupon id
-- ARGV[2]  id of the load that Postgres has noted
-- ARGV[3]  epoch of the lane, as the caller knows it
-- ARGV[4]  revision of the values that follow
-- ARGV[5]  opens_ms
-- ARGV[6]  closes_ms
-- ARGV[7]  total
-- ARGV[8]  state: active, paused or ended
-- ARGV[9]  channel on which added units are announced
--
-- Replies  APPLIED  the sale has these values now
--          PRESENT  the sale had this revision or a newer one; nothing has changed
--          LOADING  the sale has not been opened yet; nothing has changed
--          MISSING  the sale isn't there, or is another load's than the noted one: Redis has lost data
--          STALE    the lane or the sale has another epoch than the caller's
--          RECOVERING  the lane isn't open on this server: it is recovering or lost, or was opened for another one
--
-- Cost: O(1). The values are absolute, so the script may run any number of times, in any order, and skip revisions. May
-- run on a full Redis: a sale can always be paused.

local coupon, lane = KEYS[1], KEYS[2]
local coupon_id, noted_load_id, epoch, revision = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local opens_ms, closes_ms, total, state, channel = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]

local of_lane = redis.call('HMGET', lane, 'epoch', 'state', 'replid')
local replid = string.match(redis.call('INFO', 'replication'), 'role:master.-master_replid:(%x+)')
if of_lane[2] ~= 'open' or of_lane[3] ~= replid then return 'RECOVERING' end
local sale = redis.call('HMGET', coupon,
  'state', 'load', 'epoch', 'revision', 'total', 'stock', 'restocks')
local old_state, load_id, sale_epoch = sale[1], sale[2], sale[3]
if not old_state or load_id ~= noted_load_id then return 'MISSING' end
if old_state == 'loading' then return 'LOADING' end
if of_lane[1] ~= epoch or sale_epoch ~= epoch then return 'STALE' end
if tonumber(sale[4]) >= tonumber(revision) then return 'PRESENT' end

local more = total - sale[5]
local stock = string.format('%d', sale[6] + more)
-- A new count ends what processes remember of a sold-out sale.
local restocks = string.format('%d', (sale[7] or 0) + (more > 0 and 1 or 0))
redis.call('HSET', coupon,
  'opens_ms', opens_ms, 'closes_ms', closes_ms, 'stock', stock, 'total', total,
  'state', state, 'revision', revision, 'restocks', restocks)
if more > 0 then redis.call('PUBLISH', channel, coupon_id) end
return 'APPLIED'
