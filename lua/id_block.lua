-- Takes a block of numbers from a sequence, above all numbers that may have been taken before.
--
-- KEYS[1]  sequence  STRING  the last number that was taken
-- KEYS[2]  life      STRING  the life of the server in which the sequence was last raised
-- ARGV[1]  numbers in a block
-- ARGV[2]  highest number that the caller knows to be taken; 0 for none
-- ARGV[3]  life of the server, as the caller was told when it connected
-- ARGV[4]  numbers to leave out in a new life, because others may have them
-- ARGV[5]  1 if the server has been running for longer than there has been a sequence, else 0
-- ARGV[6]  seconds for which both keys are kept
--
-- Replies  the last number of the block
--
-- Cost: O(1). A server that starts again, or a replica that takes over, may have lost the last numbers: the first
-- caller of each life leaves room for numbers of which no caller knows. Otherwise INCRBY would do.

local sequence, life = KEYS[1], KEYS[2]
local block, known, run_id, room = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local is_older, seconds = ARGV[5] == '1', ARGV[6]

local stored = redis.call('GET', sequence)
local last = tonumber(stored or 0)
local is_new_life = redis.call('GET', life) ~= run_id
-- A sequence that is missing from a server that would remember it has only just begun.
local has_begun = stored or known > 0 or not is_older
if known > last or (is_new_life and has_begun) then last = math.max(last, known) + room end

redis.call('SET', sequence, string.format('%d', last + block), 'EX', seconds)
redis.call('SET', life, run_id, 'EX', seconds)
return last + block
