-- How a Redis that lost data is noticed, closed and built anew.

-- The approved state of each lane. `settings.epoch` stays as it was: older versions read it.
CREATE TABLE lanes (
    lane       integer     PRIMARY KEY CHECK (lane BETWEEN 0 AND 1023),
    -- Number of the approved state of the lane. Only grows. A transaction that writes orders locks this row in share
    -- mode, so that raising the epoch waits for it.
    epoch      bigint      NOT NULL CHECK (epoch >= 1),
    state      text        NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'recovering')),
    -- The approved life of Redis. None until Redis has had the lane for the first time.
    run_id     text,
    -- Time and reason of the last closure.
    closed_at  timestamptz,
    reason     text,
    -- Whether the next recovery believes Redis about buyers that Postgres doesn't know. An operator may decide otherwise.
    harvests   boolean     NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT lanes_recovering_since CHECK (state = 'open' OR (closed_at IS NOT NULL AND reason IS NOT NULL))
);

-- A count that a process raises in Redis once a second and notes here. Another value in Redis means that Redis went
-- back in time. A table of its own, because the rows of `lanes` are locked by every batch of orders.
CREATE TABLE lane_beats (
    lane       integer     PRIMARY KEY REFERENCES lanes (lane),
    beat       bigint      NOT NULL DEFAULT 0,
    -- Orders that the lane had ever promised at that beat.
    promised   bigint      NOT NULL DEFAULT 0,
    beat_at    timestamptz NOT NULL DEFAULT now()
);

-- The process that looks after the lanes, for as long as it says so.
CREATE TABLE lane_keeper (
    only_row   boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    process    text        NOT NULL,
    until      timestamptz NOT NULL
);
INSERT INTO lane_keeper (process, until) VALUES ('none', '1970-01-01T00:00:00Z');

-- What each recovery of a lane found and did.
CREATE TABLE recoveries (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lane        integer     NOT NULL,
    -- Epoch of the lane since then.
    epoch       bigint      NOT NULL,
    reason      text        NOT NULL,
    closed_at   timestamptz NOT NULL,
    -- None while the recovery lasts, or if its process died in it; the next one has another row.
    opened_at   timestamptz,
    -- Sales that were there unharmed, and sales that were built anew, with their buyers.
    sales_kept  bigint,
    sales_built bigint,
    buyers      bigint,
    -- Buyers that only Redis knew, and that became orders.
    harvested   bigint,
    -- Promises of living processes that neither store had, and processes that handed none in.
    receipts    bigint,
    absent      bigint,
    -- Claims that can't be kept, by user and order: a list of objects.
    lost        jsonb       NOT NULL DEFAULT '[]'
);
CREATE INDEX recoveries_of_lane ON recoveries (lane, id);

-- Dead letters hold a unit only while live orders leave one.
ALTER TABLE dead_letters ADD COLUMN holds_unit boolean NOT NULL DEFAULT true;

-- Processes that promise claims, for as long as they say that they live.
CREATE TABLE processes (
    process    text        PRIMARY KEY,
    beat_at    timestamptz NOT NULL DEFAULT now()
);

-- What living processes have promised and Postgres doesn't have, handed in when a lane is closed.
CREATE TABLE receipts (
    order_id   bigint      PRIMARY KEY,
    coupon_id  bigint      NOT NULL,
    user_id    bigint      NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- The epoch of a lane up to which a process has handed in all of its receipts.
CREATE TABLE receipt_hand_ins (
    process    text        REFERENCES processes (process) ON DELETE CASCADE,
    lane       integer     NOT NULL,
    epoch      bigint      NOT NULL,
    PRIMARY KEY (process, lane)
);
