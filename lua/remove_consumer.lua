-- Removes a consumer without entries: XGROUP DELCONSUMER would destroy its pending entries.
--
-- KEYS[1]  log  STREAM  the order log of a lane
-- ARGV[1]  group
-- ARGV[2]  consumer
--
-- Replies  0         removed (or never there)
--          above 0   the consumer holds that many pending entries, and stays
--
-- Cost: O(1): one pending entry is proof enough.

local log = KEYS[1]
local group, consumer = ARGV[1], ARGV[2]

local held = #redis.call('XPENDING', log, group, '-', '+', 1, consumer)
if held == 0 then redis.call('XGROUP', 'DELCONSUMER', log, group, consumer) end
return held
