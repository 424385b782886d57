-- Replaces the lists of unpaid orders of a lane by those that a recovery has built.
--
-- KEYS[1]  lane    HASH  epoch and state of the lane
-- KEYS[2]  unpaid  HASH  user id -> ids of the user's unpaid orders, separated by spaces
-- KEYS[3]  built   HASH  the same, as it was built; missing if there are no unpaid orders
-- ARGV[1]  epoch of the recovery
--
-- Replies  SWITCHED  the lists are those that were built
--          FENCED    another recovery has begun, or this one is over; nothing has changed
--
-- Cost: O(1); the memory of the old lists is freed in the background. A key of another type is replaced, too.

local lane, unpaid, built = KEYS[1], KEYS[2], KEYS[3]
local epoch = ARGV[1]

local facts = redis.call('HMGET', lane, 'epoch', 'state')
if facts[1] ~= epoch or facts[2] ~= 'recovering' then return 'FENCED' end
redis.call('UNLINK', unpaid)
if redis.call('EXISTS', built) == 1 then redis.call('RENAME', built, unpaid) end
return 'SWITCHED'
