#!lua flags=allow-oom
-- Takes entries off a group's pending list, and counts their orders as written.
--
-- KEYS[1]  log   STREAM  an order log of the lane
-- KEYS[2]  lane  HASH    epoch, number of orders that were ever written in the lane, and the one that was acknowledged last
-- ARGV[1]  group
-- ARGV[2]  epoch in which the entries were read
-- ARGV[3]  an order that Postgres has now, or ''; by this a Postgres that went back is known
-- ARGV[4]  its coupon, or ''
-- ARGV[5..] entry id, number of its orders that the lane has counted as promised; as often as there are entries
--
-- Replies  number of orders that are counted as written by this call; -1 if the lane has another epoch, and then nothing
--          has changed: Redis may have other entries under the same ids
--
-- Cost: O(1) for each entry. An entry that is no longer pending has been acknowledged before, or was taken off the list
-- by another step: its orders aren't counted. May run on a full Redis: the script frees memory.

local log, lane = KEYS[1], KEYS[2]
local group, epoch, last, last_of = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if redis.call('HGET', lane, 'epoch') ~= epoch then return -1 end
local written, uncounted = 0, {}
for i = 5, #ARGV, 2 do
  local entry, orders = ARGV[i], tonumber(ARGV[i + 1])
  if orders == 0 then
    uncounted[#uncounted + 1] = entry
  elseif redis.call('XACK', log, group, entry) == 1 then
    written = written + orders
  end
end
if #uncounted > 0 then redis.call('XACK', log, group, unpack(uncounted)) end
if written > 0 then
  redis.call('HINCRBY', lane, 'written', string.format('%d', written))
  if last ~= '' then redis.call('HSET', lane, 'last', last, 'last_of', last_of) end
end
return written
