#!lua flags=allow-oom
-- Creates the group of an order log if it isn't there, and the log with it; corrects the number of entries that the
-- group has read.
--
-- KEYS[1]  log  STREAM  the order log of a lane
-- ARGV[1]  group
--
-- Replies  PRESENT      the group was there
--          CREATED      the group is new
--          CREATED_LOG  both are new
--
-- Cost: O(groups), and the unread entries, of which 1,000 at most are counted. From the log's start, never from '$':
-- an acknowledged entry is in Postgres and is recognised there, any other entry would be lost. A Redis that starts
-- again takes `entries-read` from the last rewrite of its file, and reports a wrong lag. May run on a full Redis;
-- otherwise its log could never be drained.

local log = KEYS[1]
local group = ARGV[1]

local COUNTED_MAX = 1000

-- XINFO answers a flat list of names and values.
local function fields(flat)
  local map = {}
  for i = 1, #flat, 2 do map[flat[i]] = flat[i + 1] end
  return map
end

-- The number of entries that the group has read: all entries ever added, without those after the group's last one.
local function set_right(of)
  local delivered = of['last-delivered-id']
  local behind = table.concat({ '(', delivered })
  local unread = #redis.call('XRANGE', log, behind, '+', 'COUNT', COUNTED_MAX + 1)
  if unread > COUNTED_MAX then return end
  local read = fields(redis.call('XINFO', 'STREAM', log))['entries-added'] - unread
  if of['entries-read'] == read then return end
  redis.call('XGROUP', 'SETID', log, group, delivered, 'ENTRIESREAD', string.format('%d', read))
end

local log_exists = redis.call('EXISTS', log) == 1
if log_exists then
  for _, flat in ipairs(redis.call('XINFO', 'GROUPS', log)) do
    local present = fields(flat)
    if present['name'] == group then
      set_right(present)
      return 'PRESENT'
    end
  end
end
redis.call('XGROUP', 'CREATE', log, group, '0', 'MKSTREAM')
return log_exists and 'CREATED' or 'CREATED_LOG'
