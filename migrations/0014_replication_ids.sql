-- The replication ID of the Redis that a lane is approved for (`master_replid` in INFO). It changes whenever a server
-- has been a replica and is a master again, which may have brought older data within one life (`run_id`). None where a
-- version that doesn't know it has opened the lane: the next look closes the lane, and has it compared.
ALTER TABLE lanes ADD COLUMN replication_id text;
