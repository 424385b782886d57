-- Renews the lease of a lock that still belongs to its owner.
--
-- KEYS[1]  lock  STRING  the owner
-- ARGV[1]  owner
-- ARGV[2]  lease_ms
--
-- Replies  1 (renewed) or 0 (another owner holds the lock, or none)
--
-- Cost: O(1).

local lock = KEYS[1]
local owner, lease_ms = ARGV[1], ARGV[2]

if redis.call('GET', lock) == owner then
  return redis.call('PEXPIRE', lock, lease_ms)
end
return 0
