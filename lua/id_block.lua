-- Takes a block of numbers from a sequence, below the ceiling that Postgres has noted.
--
-- KEYS[1]  sequence  STRING  the last number that was taken
-- KEYS[2]  ceiling   HASH    up to which number numbers may be taken while the server has this origin, and the last one
-- ARGV[1]  numbers in a block; 0 takes none
-- ARGV[2]  numbers that have to be left below the ceiling
-- ARGV[3]  origin for which Postgres has granted more numbers; empty for none
-- ARGV[4]  number before the first one that was granted
-- ARGV[5]  last number that was granted
-- ARGV[6]  seconds for which both keys are kept
-- ARGV[7]  the last number that the caller has been given; 0 for none
--
-- Replies  code, number and origin
--   BLOCK    the number is the last one of the block
--   CEILING  the ceiling has to be raised first: for this origin, and above the number
--
-- Cost: O(1), and INFO twice; a look alone writes nothing. The origin is the life of the server and its replication ID: it changes whenever the
-- server may have lost numbers, or have gone back to older ones, and a ceiling of another origin counts for nothing.
-- Nor does one below which the caller has had higher numbers than this sequence knows: its memory went back within one
-- life, as that of a machine does which is set back to a snapshot.

local sequence, ceiling = KEYS[1], KEYS[2]
local block, left_min = tonumber(ARGV[1]), tonumber(ARGV[2])
local granted_origin, after, granted = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local seconds, had = ARGV[6], tonumber(ARGV[7])

local life = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local replication_id = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local origin = string.format('%s %s', life, replication_id)

local noted = redis.call('HMGET', ceiling, 'origin', 'number', 'last')
local last = math.max(tonumber(redis.call('GET', sequence) or 0), tonumber(noted[3] or 0))
local number = noted[1] == origin and last >= had and tonumber(noted[2]) or nil

local is_granted = granted_origin == origin and granted > (number or 0)
if is_granted then
  -- Numbers between the old ceiling and these were granted to another origin.
  if after ~= number then last = math.max(last, after) end
  number = granted
end
local has_room = number and last + block + left_min <= number
if has_room then last = last + block end
if is_granted or (has_room and block > 0) then
  local taken = string.format('%d', last)
  redis.call('SET', sequence, taken, 'EX', seconds)
  redis.call('HSET', ceiling, 'origin', origin, 'number', string.format('%d', number), 'last', taken)
  redis.call('EXPIRE', ceiling, seconds)
end
return { has_room and 'BLOCK' or 'CEILING', last, origin }
