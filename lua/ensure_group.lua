#!lua flags=allow-oom
-- Creates the group of an order log if it isn't there, and the log with it.
--
-- KEYS[1]  log  STREAM  the order log of a lane
-- ARGV[1]  group
--
-- Replies  PRESENT      it was there
--          CREATED      the group is new
--          CREATED_LOG  both are new
--
-- Cost: O(groups). From the log's start, never from '$': what was acknowledged before is in Postgres and
-- is recognised there, what wasn't would be lost from anywhere else. May run on a full Redis, or what is
-- in its log could never be drained.

local log = KEYS[1]
local group = ARGV[1]

local log_exists = redis.call('EXISTS', log) == 1
if log_exists then
  -- XINFO GROUPS answers a flat list of names and values for each group; the first one is its name.
  for _, present in ipairs(redis.call('XINFO', 'GROUPS', log)) do
    if present[2] == group then return 'PRESENT' end
  end
end
redis.call('XGROUP', 'CREATE', log, group, '0', 'MKSTREAM')
return log_exists and 'CREATED' or 'CREATED_LOG'
