#!lua flags=allow-oom
-- Creates the group of an order log if it isn't there, and the log with it.
--
-- KEYS[1]  log   STREAM  an order log of the lane
-- KEYS[2]  lane  HASH    state of the lane, and numbers of orders ever accepted and written in it
-- ARGV[1]  group
--
-- Replies  PRESENT      the group was there
--          CREATED      the group is new
--          CREATED_LOG  both are new
--          LOST         the log was lost, or its key has another type: an open lane has the state 'lost' now, until a
--                       recovery has found the orders and begun the log anew
--
-- Cost: O(groups), and up to 1,000 entries where the group is missing. The group begins at the log's start, never at
-- '$': an acknowledged entry is in Postgres and is recognised there, any other entry would be lost. A new group
-- acknowledges the entries of the log once more, so their orders no longer count as written. A log without its group
-- was lost if it is missing although orders were accepted, or was begun anew since, as any program's XADD does: then it
-- has all entries that it ever had, and the first order isn't among them. May run on a full Redis; otherwise its log
-- could never be drained.

local log, lane = KEYS[1], KEYS[2]
local group = ARGV[1]

local COUNTED_MAX = 1000

-- XINFO returns a flat list of names and values.
local function fields(flat)
  local map = {}
  for i = 1, #flat, 2 do map[flat[i]] = flat[i + 1] end
  return map
end

-- Whether a log without the group was lost.
local function is_lost()
  if tonumber(redis.call('HGET', lane, 'accepted') or 0) == 0 then return false end
  if redis.call('EXISTS', log) == 0 then return true end
  local of = fields(redis.call('XINFO', 'STREAM', log))
  if of['entries-added'] ~= of['length'] then return false end
  local entries = redis.call('XRANGE', log, '-', '+', 'COUNT', COUNTED_MAX)
  for _, entry in ipairs(entries) do
    local first = fields(entry[2])['first']
    if first then return first ~= '1' end
  end
  return #entries < COUNTED_MAX
end

-- Counts as written only the orders before the log's first entry: their entries have been trimmed.
local function count_anew()
  for _, entry in ipairs(redis.call('XRANGE', log, '-', '+', 'COUNT', COUNTED_MAX)) do
    local first = fields(entry[2])['first']
    if first then
      redis.call('HSET', lane, 'written', string.format('%d', first - 1))
      return
    end
  end
end

local function lose()
  if redis.call('HGET', lane, 'state') == 'open' then redis.call('HSET', lane, 'state', 'lost') end
  return 'LOST'
end

local log_type = redis.call('TYPE', log).ok
if log_type ~= 'stream' and log_type ~= 'none' then return lose() end
local log_exists = log_type == 'stream'
if log_exists then
  for _, flat in ipairs(redis.call('XINFO', 'GROUPS', log)) do
    if fields(flat)['name'] == group then return 'PRESENT' end
  end
end
if is_lost() then return lose() end
count_anew()
redis.call('XGROUP', 'CREATE', log, group, '0', 'MKSTREAM')
return log_exists and 'CREATED' or 'CREATED_LOG'
