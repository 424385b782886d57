-- Takes a unit for a user who has none, and appends the order to a stream that is cut to its last 100 entries.
local stock, buyers, log, user = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
if tonumber(redis.call('GET', stock)) < 1 or redis.call('SADD', buyers, user) == 0 then return 0 end
redis.call('DECR', stock)
redis.call('XADD', log, 'MAXLEN', 100, '*', 'user', user)
return 1
