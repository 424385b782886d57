#!lua flags=allow-oom
-- Takes orders off their users' lists of unpaid orders.
--
-- KEYS[1]  unpaid  HASH  user id -> ids of the user's unpaid orders, separated by spaces
-- ARGV[1..] user id and order id of each order
--
-- Replies  number of orders that were on such a list
--
-- Cost: O(orders on these lists), O(1) where the bound is off. May run any number of times: an order that is on no list
-- changes nothing. May run on a full Redis: the script frees more memory than it takes.

local unpaid = KEYS[1]

if redis.call('EXISTS', unpaid) == 0 then return 0 end

local freed = 0
for i = 1, #ARGV, 2 do
  local user, order = ARGV[i], ARGV[i + 1]
  local kept, found = {}, false
  for held in string.gmatch(redis.call('HGET', unpaid, user) or '', '%d+') do
    if held == order then found = true else kept[#kept + 1] = held end
  end
  if found then
    freed = freed + 1
    if #kept == 0 then
      redis.call('HDEL', unpaid, user)
    else
      redis.call('HSET', unpaid, user, table.concat(kept, ' '))
    end
  end
end
return freed
