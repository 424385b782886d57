#!lua flags=allow-oom
-- Takes entries off a group's pending list, and counts their orders as written.
--
-- KEYS[1]  log   STREAM  an order log of the lane
-- KEYS[2]  lane  HASH    epoch, number of orders ever written in the lane, and the order that was acknowledged last
-- ARGV[1]  group
-- ARGV[2]  epoch in which the entries were read
-- ARGV[3]  an order that Postgres has now, or ''; a Postgres that lacks it later has gone back in time
-- ARGV[4]  its coupon, or ''
-- ARGV[5..] for each entry its id, and the number of its orders that the lane has counted as accepted (0 for an entry
--           that is lost or can't be read)
--
-- Replies  number of orders that this call has counted as written; -1 if the lane has another epoch, because Redis may
--          have other entries under the same ids: nothing has changed then
--
-- Cost: O(1) for each entry. An entry that isn't pending has been acknowledged before, or another step took it off the
-- list: its orders aren't counted again. May run on a full Redis, because the script frees memory.

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
