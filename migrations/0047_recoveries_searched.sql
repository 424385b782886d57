-- Closures of lanes, newest first: all, of a lane, of a reason, and in each rare state; 0026 has the unsettled ones. A
-- recovery of a lane that begins or ends waits while these are built: the table has the closures of the last year.
CREATE INDEX recoveries_closed ON recoveries (closed_at, id);
CREATE INDEX recoveries_closed_of_lane ON recoveries (lane, closed_at, id);
CREATE INDEX recoveries_closed_of_reason ON recoveries (reason, closed_at, id);
CREATE INDEX recoveries_closed_unfinished ON recoveries (closed_at, id) WHERE opened_at IS NULL;
CREATE INDEX recoveries_closed_settled ON recoveries (closed_at, id) WHERE settled_at IS NOT NULL;
