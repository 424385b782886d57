-- How a Redis that lost data is noticed, closed, compared and built anew.

-- The approved state of each lane.
CREATE TABLE lanes (
    lane       integer     PRIMARY KEY CHECK (lane BETWEEN 0 AND 62),
    -- Number of the approved state of the lane. Only grows. A transaction that writes orders locks this row in share
    -- mode, so that raising the epoch waits for it.
    epoch      bigint      NOT NULL CHECK (epoch >= 1),
    state      text        NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'recovering')),
    -- Whether Redis has ever had the lane: from then on a missing one is a loss.
    begun      boolean     NOT NULL DEFAULT false,
    -- Time and reason of the last closure.
    closed_at  timestamptz,
    reason     text,
    -- The store that an operator believes in the next recovery. NULL: Redis is believed about accepted claims, and
    -- Postgres about what it has.
    trusts     text CHECK (trusts IN ('redis', 'postgres')),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT lanes_recovering_since CHECK (state = 'open' OR (closed_at IS NOT NULL AND reason IS NOT NULL))
);

-- What each recovery of a lane found and did.
CREATE TABLE recoveries (
    id               bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lane             integer     NOT NULL,
    -- Epoch of the last attempt.
    epoch            bigint      NOT NULL,
    reason           text        NOT NULL,
    closed_at        timestamptz NOT NULL,
    -- None while the recovery lasts. An attempt that is broken off leaves its row to the next one.
    opened_at        timestamptz,
    -- Sales that were there unharmed, and sales that were built anew, with their buyers.
    sales_kept       bigint,
    sales_built      bigint,
    buyers           bigint,
    -- Buyers that only Redis knew, and that became orders.
    harvested        bigint,
    -- Claims that living processes had accepted and neither store had.
    unwritten         bigint,
    -- Living processes that handed none in within the time: their number and names.
    absent           bigint,
    absent_processes text[],
    -- Accepted claims, at least, that neither a store nor a living process knew. None where that can't be known.
    unknown          bigint,
    -- Claims that can't be kept, by user and order: a list of objects.
    lost             jsonb       NOT NULL DEFAULT '[]',
    -- When the staff has settled them, and how.
    settled_at       timestamptz,
    note             text,
    CONSTRAINT recoveries_settled CHECK ((settled_at IS NULL) = (note IS NULL))
);
CREATE INDEX recoveries_of_lane ON recoveries (lane, id);
-- What waits for the staff.
CREATE INDEX recoveries_unsettled ON recoveries (id) WHERE settled_at IS NULL AND (lost <> '[]' OR unknown > 0);
-- The rare states.
CREATE INDEX recoveries_unfinished ON recoveries (id) WHERE opened_at IS NULL;
CREATE INDEX recoveries_settled ON recoveries (id) WHERE settled_at IS NOT NULL;

-- Processes that accept claims, for as long as they say that they live.
CREATE TABLE processes (
    process text        PRIMARY KEY,
    beat_at timestamptz NOT NULL DEFAULT now()
);
-- What living processes have accepted and Postgres doesn't have, handed in when a lane is closed.
CREATE TABLE unwritten_claims (
    order_id   bigint      PRIMARY KEY,
    coupon_id  bigint      NOT NULL,
    user_id    bigint      NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
-- The epoch of a lane up to which a process has handed in all of its unwritten claims.
CREATE TABLE hand_ins (
    process text   REFERENCES processes (process) ON DELETE CASCADE,
    lane    integer NOT NULL,
    epoch   bigint NOT NULL,
    PRIMARY KEY (process, lane)
);

-- What each comparison of Redis with Postgres found.
CREATE TABLE reconcile_runs (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Who asked for it: the clock, an operator over HTTP, or somebody at the command line.
    asked_by      text        NOT NULL CHECK (asked_by IN ('period', 'api', 'command_line')),
    started_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- If its process died on the way, the time at which the next one began.
    finished_at   timestamptz,
    -- Why nothing could be said: a store didn't answer.
    failure       text,
    -- Whether nothing was under way from beginning to end.
    at_rest       boolean,
    -- Sales that were compared, and entries of the order log in flight.
    sales         bigint,
    in_flight     bigint,
    -- How many disagreements there were, and the first of them: code, coupon_id, detail.
    disagreements bigint,
    findings      jsonb       NOT NULL DEFAULT '[]',
    CONSTRAINT reconcile_runs_finished CHECK
        ((finished_at IS NULL) = (failure IS NULL AND disagreements IS NULL)),
    CONSTRAINT reconcile_runs_found CHECK (num_nulls(at_rest, sales, in_flight, disagreements) IN (0, 4))
);
CREATE INDEX reconcile_runs_started_at ON reconcile_runs (started_at);
