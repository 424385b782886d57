#!lua flags=allow-oom
-- Compares the beat of a lane with the noted one, and raises it.
--
-- KEYS[1]  lane  HASH    epoch, state, beat and counts of the lane
-- KEYS[2]  log   STREAM  the order log of the lane
-- ARGV[1]  epoch that Postgres has noted
-- ARGV[2]  beat that Postgres has noted
--
-- Replies  a code, a number, and the time in ms if all promised orders are written, else 0
--   BEAT     the lane is as it was noted; the number counts the orders that were ever promised in it
--   MISSING  the lane isn't there, or can't be read: Redis has lost its data
--   EPOCH    the lane has another epoch, which is the number
--   CLOSED   the lane is recovering
--   LOGLESS  orders were promised, and their log isn't there; or it is noted as lost, or is a key of another type
--   BEHIND   the lane has another beat than the noted one, which is the number: Redis went back in time
--
-- Cost: O(1). The beat that follows the noted one counts as noted: the process that raised it died before its note, or
-- had no reply. A Redis that went back never has it. May run on a full Redis.

local lane, log = KEYS[1], KEYS[2]
local noted_epoch, noted_beat = ARGV[1], tonumber(ARGV[2])

local facts = redis.pcall('HMGET', lane, 'epoch', 'state', 'beat', 'promised', 'log', 'written')
local epoch, state, beat, promised = facts[1], facts[2], tonumber(facts[3] or 0), tonumber(facts[4] or 0)
if facts.err or not (epoch and beat and promised) then return { 'MISSING', 0, 0 } end
if epoch ~= noted_epoch then return { 'EPOCH', tonumber(epoch) or 0, 0 } end
if state ~= 'open' then return { 'CLOSED', 0, 0 } end
if beat ~= noted_beat and beat ~= noted_beat + 1 then return { 'BEHIND', beat, 0 } end
local log_type = redis.call('TYPE', log).ok
local log_is_lost = facts[5] or (log_type ~= 'stream' and (log_type ~= 'none' or promised > 0))
if log_is_lost then return { 'LOGLESS', 0, 0 } end

redis.call('HSET', lane, 'beat', string.format('%d', noted_beat + 1))
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
return { 'BEAT', promised, tonumber(facts[6] or 0) == promised and now_ms or 0 }
