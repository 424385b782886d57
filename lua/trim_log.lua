-- Trims the order log up to the first entry that some group still needs.
--
-- KEYS[1]  log   STREAM  an order log of the lane
-- KEYS[2]  lane  HASH    numbers of orders ever accepted and written in the lane
-- ARGV[1]  group whose entries the lane counts
--
-- Replies  number of entries removed, and number of orders by which the count of written ones was corrected
--
-- Cost: O(groups) plus the entries removed, at most some 10,000 a call (the bound of '~'). Never MAXLEN, which drops
-- unread entries. The limit is read and used in one step, so no entry is delivered in between. When the group has no
-- entry left, all accepted orders have to be written. Those that aren't were lost with their entries: the caller raises
-- the alarm, and the correction keeps them from counting as backlog for ever.

local log, lane = KEYS[1], KEYS[2]
local counted_group = ARGV[1]

-- XINFO GROUPS returns a flat list of names and values for each group.
local function fields(flat)
  local map = {}
  for i = 1, #flat, 2 do map[flat[i]] = flat[i + 1] end
  return map
end

-- Ids are '<ms>-<sequence>', compared number by number.
local function older(a, b)
  local a_ms, a_seq = string.match(a, '(%d+)-(%d+)')
  local b_ms, b_seq = string.match(b, '(%d+)-(%d+)')
  if a_ms ~= b_ms then return tonumber(a_ms) < tonumber(b_ms) end
  return tonumber(a_seq) < tonumber(b_seq)
end

local function correct()
  local counts = redis.call('HMGET', lane, 'accepted', 'written')
  local unaccounted = (counts[1] or 0) - (counts[2] or 0)
  if unaccounted ~= 0 then redis.call('HINCRBY', lane, 'written', string.format('%d', unaccounted)) end
  return unaccounted
end

if redis.call('EXISTS', log) == 0 then return { 0, correct() } end

local keep_from, group_is_done
for _, flat in ipairs(redis.call('XINFO', 'GROUPS', log)) do
  local group = fields(flat)
  if group['name'] == counted_group and group['pending'] == 0 then
    local behind = table.concat({ '(', group['last-delivered-id'] })
    group_is_done = #redis.call('XRANGE', log, behind, '+', 'COUNT', 1) == 0
  end
  local needed = group['last-delivered-id']
  if group['pending'] > 0 then needed = redis.call('XPENDING', log, group['name'])[2] end
  if not keep_from or older(needed, keep_from) then keep_from = needed end
end
if not keep_from then return { 0, 0 } end

local removed = redis.call('XTRIM', log, 'MINID', '~', keep_from)
return { removed, group_is_done and correct() or 0 }
