-- Adds orders to lists of unpaid orders that a recovery builds beside those in use.
--
-- KEYS[1]  lane   HASH  epoch and state of the lane
-- KEYS[2]  built  HASH  user id -> order ids of their unpaid orders, a space between two
-- ARGV[1]  epoch of the recovery
-- ARGV[2..] user id, order id; as often as there are orders
--
-- Replies  LISTED  the orders stand on the lists
--          FENCED  another recovery has begun, or this one is over; nothing has changed
--
-- Cost: O(orders). No recoverer that slept leaves a key behind: the epoch in its name is the lane's.

local lane, built = KEYS[1], KEYS[2]
local epoch = ARGV[1]

local facts = redis.call('HMGET', lane, 'epoch', 'state')
if facts[1] ~= epoch or facts[2] ~= 'recovering' then return 'FENCED' end
for i = 2, #ARGV, 2 do
  local user, order = ARGV[i], ARGV[i + 1]
  local before = redis.call('HGET', built, user)
  redis.call('HSET', built, user, before and table.concat({ before, order }, ' ') or order)
end
return 'LISTED'
