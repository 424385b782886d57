-- Trims the order log up to the first entry that some group still needs.
--
-- KEYS[1]  log  STREAM  the order log of a lane
-- ARGV     none
--
-- Replies  number of entries removed
--
-- Cost: O(groups) plus the entries removed, at most some 10,000 a call (the bound of '~').
-- Never MAXLEN, which drops unread entries. The limit is read and used in one step, so no entry is
-- delivered in between.

local log = KEYS[1]

-- XINFO GROUPS answers a flat list of names and values for each group.
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

if redis.call('EXISTS', log) == 0 then return 0 end

local keep_from
for _, flat in ipairs(redis.call('XINFO', 'GROUPS', log)) do
  local group = fields(flat)
  local needed = group['last-delivered-id']
  if group['pending'] > 0 then needed = redis.call('XPENDING', log, group['name'])[2] end
  if not keep_from or older(needed, keep_from) then keep_from = needed end
end
if not keep_from then return 0 end

return redis.call('XTRIM', log, 'MINID', '~', keep_from)
