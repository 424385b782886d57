-- Releases a lock that still belongs to its owner; never a lock that another owner holds by now.
--
-- KEYS[1]  lock  STRING  the owner
-- ARGV[1]  owner
--
-- Replies  1 (released) or 0 (another owner holds the lock, or none)
--
-- Cost: O(1).

local lock = KEYS[1]
local owner = ARGV[1]

if redis.call('GET', lock) == owner then
  return redis.call('DEL', lock)
end
return 0
