-- Since when a lane has been open with sales that its recovery took over by beat and counters. None once a comparison
-- has read these sales. An older version leaves the time as it is.
ALTER TABLE lane_beats ADD COLUMN unchecked_since timestamptz;
