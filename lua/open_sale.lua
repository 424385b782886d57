-- Opens a loaded sale to claims, once Postgres has noted that it is in Redis.
--
-- KEYS[1]  coupon  HASH  the sale, as the claim script reads it
-- ARGV[1]  state to leave 'loading' for: active, paused or ended
--
-- Replies  OPENED   it was loading and has that state now
--          PRESENT  it had been opened before and has not been touched
--          MISSING  there is no such sale: Redis has lost data
--
-- Cost: O(1).

local coupon = KEYS[1]
local new_state = ARGV[1]

local state = redis.call('HGET', coupon, 'state')
if not state then return 'MISSING' end
if state ~= 'loading' then return 'PRESENT' end

redis.call('HSET', coupon, 'state', new_state)
return 'OPENED'
