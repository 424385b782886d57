#!lua flags=allow-oom
-- Takes a sale over into the epoch of a recovery, with its units and buyers as they are.
--
-- KEYS[1]  lane    HASH  epoch and state of the lane, and steps of its recovery
-- KEYS[2]  coupon  HASH  the sale
-- ARGV[1]  epoch of the recovery
-- ARGV[2]  load id that Postgres has noted
--
-- Replies  ADOPTED  the sale has the epoch
--          MISSING  the sale isn't there, can't be read, isn't open yet, or is the work of another load: Redis has lost
--                   data
--          FENCED   another recovery has begun, or this one is over; nothing has changed
--
-- Cost: O(1). May run on a full Redis.

local lane, coupon = KEYS[1], KEYS[2]
local epoch, noted_load_id = ARGV[1], ARGV[2]

local facts = redis.call('HMGET', lane, 'epoch', 'state')
if facts[1] ~= epoch or facts[2] ~= 'recovering' then return 'FENCED' end
local sale = redis.pcall('HMGET', coupon, 'state', 'load')
if not sale[1] or sale[1] == 'loading' or sale[2] ~= noted_load_id then return 'MISSING' end
redis.call('HSET', coupon, 'epoch', epoch)
redis.call('HINCRBY', lane, 'steps', 1)
return 'ADOPTED'
