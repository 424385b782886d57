#!lua flags=allow-oom
-- Tries to take locks, each one for itself: some may be taken while others are held elsewhere. The holder is this
-- batch's own, so it has a lock already only where a name comes twice.
--
-- KEYS     the locks  HASH  holder -> number of its entries: one; time to live = lease
-- ARGV[1]  lease_ms
-- ARGV[2]  holder
-- ARGV[3]  1 for locks in memory only: neither the append-only file nor a replica gets the writes
--
-- Replies  a list of the positions in KEYS, counted from 1, that are held elsewhere
--
-- Cost: O(locks), and one command for each but the first. May run on a full Redis, or a full Redis could never be
-- drained.

local lease_ms, holder, is_volatile = ARGV[1], ARGV[2], ARGV[3] == '1'

if is_volatile then redis.set_repl(redis.REPL_NONE) end

local contended, model = {}, nil
for i, lock in ipairs(KEYS) do
  local is_taken
  if model and lock == KEYS[model] then
    is_taken = true
  elseif model then
    -- The same holder and the same lease in one command, which leaves an existing lock alone.
    is_taken = redis.call('COPY', KEYS[model], lock) == 1
  elseif redis.call('EXISTS', lock) == 0 then
    redis.call('HSET', lock, holder, 1)
    redis.call('PEXPIRE', lock, lease_ms)
    is_taken, model = true, i
  end
  -- Protected: a key of another type is held elsewhere, too.
  if not is_taken and redis.pcall('HEXISTS', lock, holder) ~= 1 then contended[#contended + 1] = i end
end
return contended
