-- Renews the leases of locks that still belong to their owner.
--
-- KEYS     the locks  STRING  the owner
-- ARGV[1]  owner
-- ARGV[2]  lease_ms
--
-- Replies  number of locks renewed; fewer than there are KEYS means that some are lost
--
-- Cost: O(locks).

local owner, lease_ms = ARGV[1], ARGV[2]

local renewed = 0
for _, lock in ipairs(KEYS) do
  if redis.call('GET', lock) == owner then
    renewed = renewed + redis.call('PEXPIRE', lock, lease_ms)
  end
end
return renewed
