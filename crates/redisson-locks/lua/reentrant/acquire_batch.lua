#!lua flags=allow-oom
-- Tries to take locks, each one for itself: some may be taken while others are held elsewhere. The holder is this
-- batch's own, so it can't have any of the locks already.
--
-- KEYS     the locks  HASH  holder -> number of its entries: one; time to live = lease
-- ARGV[1]  lease_ms
-- ARGV[2]  holder
--
-- Replies  a list with 1 (taken) or 0 (held elsewhere) for each key
--
-- Cost: O(locks). May run on a full Redis, or a full Redis could never be drained.
-- Replicas get the writes, the append-only file doesn't: a lease isn't worth a sync of the disk. A Redis that starts
-- again has freed these locks, and the next renewal tells the holder.

local lease_ms, holder = ARGV[1], ARGV[2]

redis.set_repl(redis.REPL_REPLICA)

local taken, model = {}, nil
for i, lock in ipairs(KEYS) do
  if model then
    -- The same holder and the same lease in one command, which leaves an existing lock alone.
    taken[i] = redis.call('COPY', KEYS[model], lock)
  elseif redis.call('EXISTS', lock) == 1 then
    taken[i] = 0
  else
    redis.call('HSET', lock, holder, 1)
    taken[i] = redis.call('PEXPIRE', lock, lease_ms)
    model = i
  end
end
return taken
