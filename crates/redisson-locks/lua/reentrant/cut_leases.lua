-- Shortens leases that are longer than any that clients ask for: the server's clock has been set back since.
--
-- KEYS     the locks  HASH  holder -> number of its entries
-- ARGV[1]  lease_max_ms, the longest lease that is asked for
-- ARGV[2]  lease_ms, what is left of a longer one
--
-- Replies  number of leases that were cut
--
-- Cost: O(locks). A holder that lives renews its lease before the end.

local lease_max_ms, lease_ms = tonumber(ARGV[1]), ARGV[2]

local cut = 0
for _, lock in ipairs(KEYS) do
  if redis.call('PTTL', lock) > lease_max_ms then
    cut = cut + redis.call('PEXPIRE', lock, lease_ms)
  end
end
return cut
