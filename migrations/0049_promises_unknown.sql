-- The last beat at which all promised orders of the lane were written, by the time of Redis. What was promised since then
-- and is known to neither store after a loss is counted.
ALTER TABLE lane_beats ADD COLUMN settled_promised bigint, ADD COLUMN settled_at timestamptz;

-- Promises, at least, that neither a store nor a living process knew. None where that can't be known.
ALTER TABLE recoveries ADD COLUMN unknown bigint;
DROP INDEX recoveries_unsettled;
CREATE INDEX recoveries_unsettled ON recoveries (id) WHERE settled_at IS NULL AND (lost <> '[]' OR unknown > 0);
