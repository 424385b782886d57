-- Opens a loaded sale to claims, once Postgres has noted that it is in Redis.
--
-- KEYS[1]  coupon  HASH  the sale, as the claim script reads it
-- ARGV[1]  load id that Postgres has noted
-- ARGV[2]  state to leave 'loading' for: active, paused or ended
--
-- Replies  OPENED   it was loading and has that state now
--          PRESENT  it had been opened before and has not been touched
--          MISSING  this sale isn't there, or is the work of another load than the noted one: Redis
--                   has lost data
--
-- Cost: O(1). Without the load id, a sale that was loaded, sold, lost, and then written once more by
-- somebody who had been asleep since before all that would be sold again.

local coupon = KEYS[1]
local noted_load_id, new_state = ARGV[1], ARGV[2]

local sale = redis.call('HMGET', coupon, 'state', 'load')
local state, load_id = sale[1], sale[2]
if not state or load_id ~= noted_load_id then return 'MISSING' end
if state ~= 'loading' then return 'PRESENT' end

redis.call('HSET', coupon, 'state', new_state)
return 'OPENED'
