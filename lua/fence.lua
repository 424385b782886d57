#!lua flags=allow-oom
-- Closes a lane: from now on every script that sells or releases units refuses. Begins a missing order log.
--
-- KEYS[1]  lane  HASH    epoch, state, replication ID and counts of the lane, and marks of what Postgres has to have
-- KEYS[2]  log   STREAM  the order log of the lane
-- KEYS[3]  aside         new name of a key of another type that stands in the place of the log
-- ARGV[1]  epoch of the recovery
-- ARGV[2]  id of the installation
-- ARGV[3]  incarnation of its Postgres, or '' if that is unknown
-- ARGV[4]  group of the log
-- ARGV[5]  1 if an operator has decided which store is right: then the marks are removed
--
-- Replies  FENCED    the lane is recovering under this epoch
--          LOST      the same; the lane or its log wasn't there
--          MOVED     the same, and a key of another type was moved aside
--          AHEAD     the lane has this epoch or a newer one: another process recovers it, or Postgres went back
--          OTHER     the lane belongs to another installation; nothing has changed
--
-- Cost: O(1), and INFO. One write covers all sales of the lane, even those that are loaded later. From here on the
-- scripts take this server for the approved one: each compares its replication ID with the lane's, and a restart, a
-- resynchronisation or a promotion changes the server's. A lane or a count that can't be read is removed, as if Redis
-- had lost it. A log that begins anew has no order to be written. The key that stood in its place is kept, because it
-- may be of worth to the program that wrote it. May run on a full Redis.

local lane, log, aside = KEYS[1], KEYS[2], KEYS[3]
local epoch, installation, postgres_run, group, is_decided = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'

local COUNTS = { 'accepted', 'written', 'second', 'used' }

local owner = redis.pcall('HGET', lane, 'installation')
if type(owner) == 'string' and owner ~= installation then return 'OTHER' end
local facts = redis.pcall('HMGET', lane, 'epoch', unpack(COUNTS))
if facts.err then redis.call('DEL', lane) end
local before = tonumber(facts[1] or '')
if before and before >= tonumber(epoch) then return 'AHEAD' end
for i, count in ipairs(COUNTS) do
  if facts[i + 1] and not tonumber(facts[i + 1]) then redis.call('HDEL', lane, count) end
end
local replid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
redis.call('HSET', lane, 'epoch', epoch, 'state', 'recovering', 'replid', replid, 'installation', installation)
if postgres_run ~= '' then redis.call('HSET', lane, 'postgres', postgres_run) end
if is_decided then redis.call('HDEL', lane, 'last', 'last_of', 'sale', 'sale_load') end

local log_type = redis.call('TYPE', log).ok
local is_other = log_type ~= 'stream' and log_type ~= 'none'
if is_other then redis.call('RENAME', log, aside) end
if log_type ~= 'stream' then
  redis.call('HSET', lane, 'written', redis.call('HGET', lane, 'accepted') or '0')
end
-- From the log's start: an acknowledged entry is in Postgres and is recognised there. It is acknowledged once more.
local created = redis.pcall('XGROUP', 'CREATE', log, group, '0', 'MKSTREAM')
local first = not created.err and redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
local words = first and first[2] or {}
for i = 1, #words, 2 do
  if words[i] == 'first' then redis.call('HSET', lane, 'written', string.format('%d', words[i + 1] - 1)) end
end
if is_other then return 'MOVED' end
return (before and log_type == 'stream') and 'FENCED' or 'LOST'
