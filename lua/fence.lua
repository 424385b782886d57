#!lua flags=allow-oom
-- Closes a lane: from now on every script that sells or returns units refuses.
--
-- KEYS[1]  lane  HASH    epoch, state, beat and counts of the lane, and whether its log is lost
-- KEYS[2]  log   STREAM  the log of calls of the lane
-- KEYS[3]  older STREAM  the log of claims of the lane
-- KEYS[4]  aside        a key of another type that stands in the place of the log of calls gets this name
-- KEYS[5]  older_aside  the same for the log of claims
-- ARGV[1]  epoch of the recovery
-- ARGV[2]  id of the installation
-- ARGV[3]  life of its Postgres, or '' if that is unknown
--
-- Replies  a code, and for each of the two logs 1 if a key of another type was moved aside
--   FENCED  the lane is recovering under this epoch
--   AHEAD   the lane has a newer epoch: another process recovers it, or Postgres went back in time
--   OTHER   the lane belongs to another installation; nothing has changed
--
-- Cost: O(1). One write covers all sales of the lane, also those that will be there later. May run on a full Redis. A
-- lane, or a count, that can't be read is removed: as if Redis had lost it. A log that is missing although orders were
-- promised, or that another key stands in the place of, is noted as lost, until the lane is opened: a recovery that
-- begins again still knows. The other key may be of worth to the program that wrote it, so it is kept.

local lane, log, older, aside, older_aside = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local epoch, installation, life = ARGV[1], ARGV[2], ARGV[3]

local COUNTS = { 'beat', 'promised', 'written' }

local owner = redis.pcall('HGET', lane, 'installation')
if type(owner) == 'string' and owner ~= installation then return { 'OTHER', 0, 0 } end
local facts = redis.pcall('HMGET', lane, 'epoch', unpack(COUNTS))
if facts.err then redis.call('DEL', lane) end
if (tonumber(facts[1] or 0) or 0) > tonumber(epoch) then return { 'AHEAD', 0, 0 } end
for i, count in ipairs(COUNTS) do
  if facts[i + 1] and not tonumber(facts[i + 1]) then redis.call('HDEL', lane, count) end
end
redis.call('HSET', lane, 'epoch', epoch, 'state', 'recovering', 'steps', '0', 'installation', installation)
if life ~= '' then redis.call('HSET', lane, 'postgres', life) end
-- What Postgres has to have, as far as this recovery leaves it.
redis.call('HDEL', lane, 'last', 'last_of', 'sale', 'sale_load')
local promised = tonumber(redis.call('HGET', lane, 'promised') or 0)
local log_type, older_type = redis.call('TYPE', log).ok, redis.call('TYPE', older).ok
local is_other = log_type ~= 'stream' and log_type ~= 'none'
local older_is_other = older_type ~= 'stream' and older_type ~= 'none'
if is_other then redis.call('RENAME', log, aside) end
if older_is_other then redis.call('RENAME', older, older_aside) end
if is_other or older_is_other or (promised > 0 and log_type == 'none') then redis.call('HSET', lane, 'log', 'lost') end
return { 'FENCED', is_other and 1 or 0, older_is_other and 1 or 0 }
