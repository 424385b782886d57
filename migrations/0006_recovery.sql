-- How a Redis that lost data is noticed, closed, compared and built anew.

-- The approved state of each lane.
CREATE TABLE lanes (
    lane       integer     PRIMARY KEY CHECK (lane BETWEEN 0 AND 62),
    -- Number of the approved state of the lane. Only grows. A transaction that writes orders locks this row in share mode,
    -- so that raising the epoch waits for it.
    epoch      bigint      NOT NULL CHECK (epoch >= 1),
    state      text        NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'recovering')),
    -- Whether Redis has ever had the lane: from then on a missing one is a loss.
    begun      boolean     NOT NULL DEFAULT false,
    -- Time and reason of the last closure.
    closed_at  timestamptz,
    reason     text,
    -- The store that an operator believes in the next recovery. NULL: Redis is believed about promises, and Postgres about
    -- what it has.
    trusts     text CHECK (trusts IN ('redis', 'postgres')),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT lanes_recovering_since CHECK (state = 'open' OR (closed_at IS NOT NULL AND reason IS NOT NULL))
);

-- The process that looks after the lanes, for as long as it says so.
CREATE TABLE lane_keeper (
    only_row boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    process  text        NOT NULL,
    until    timestamptz NOT NULL
);
INSERT INTO lane_keeper (process, until) VALUES ('none', '1970-01-01T00:00:00Z');

-- What each recovery of a lane found and did.
CREATE TABLE recoveries (
    id               bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lane             integer     NOT NULL,
    -- Epoch of the lane since then.
    epoch            bigint      NOT NULL,
    reason           text        NOT NULL,
    closed_at        timestamptz NOT NULL,
    -- None while the recovery lasts, or if its process died in it; the next one has another row.
    opened_at        timestamptz,
    -- Sales that were there unharmed, and sales that were built anew, with their buyers.
    sales_kept       bigint,
    sales_built      bigint,
    buyers           bigint,
    -- Buyers that only Redis knew, and that became orders.
    harvested        bigint,
    -- Promises of living processes that neither store had.
    receipts         bigint,
    -- Living processes that handed none in within the time: their number and names.
    absent           bigint,
    absent_processes text[],
    -- Receipts that a process had dropped for newer ones, and that were not known to be committed.
    receipts_dropped bigint,
    -- Promises, at least, that neither a store nor a living process knew. None where that can't be known.
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
-- Closures, newest first: all, of a lane, of a reason, and in each rare state.
CREATE INDEX recoveries_closed ON recoveries (closed_at, id);
CREATE INDEX recoveries_closed_of_lane ON recoveries (lane, closed_at, id);
CREATE INDEX recoveries_closed_of_reason ON recoveries (reason, closed_at, id);
CREATE INDEX recoveries_closed_unfinished ON recoveries (closed_at, id) WHERE opened_at IS NULL;
CREATE INDEX recoveries_closed_settled ON recoveries (closed_at, id) WHERE settled_at IS NOT NULL;

-- Processes that promise claims, for as long as they say that they live.
CREATE TABLE processes (
    process text        PRIMARY KEY,
    beat_at timestamptz NOT NULL DEFAULT now()
);
-- What living processes have promised and Postgres doesn't have, handed in when a lane is closed.
CREATE TABLE receipts (
    order_id   bigint      PRIMARY KEY,
    coupon_id  bigint      NOT NULL,
    user_id    bigint      NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
-- The epoch of a lane up to which a process has handed in all of its receipts, but those that it had dropped.
CREATE TABLE receipt_hand_ins (
    process text   REFERENCES processes (process) ON DELETE CASCADE,
    lane    integer NOT NULL,
    epoch   bigint NOT NULL,
    dropped bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (process, lane)
);

-- What each comparison of Redis with Postgres found, and what it repaired.
CREATE TABLE reconcile_runs (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Who asked for it: the clock, an administrator over HTTP, or somebody at the command line.
    asked_by      text        NOT NULL CHECK (asked_by IN ('period', 'api', 'command_line')),
    started_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Never set if its process died on the way.
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
    -- What was done about them: code, coupon_id, detail, done.
    repairs       jsonb       NOT NULL DEFAULT '[]',
    -- Subject of the token, and the Idempotency-Key: a repeat gets the same comparison.
    asker         bigint CHECK (asker > 0),
    key           text CHECK (octet_length(key) BETWEEN 1 AND 255),
    -- SHA-256 of the body.
    fingerprint   bytea,
    CONSTRAINT reconcile_runs_finished CHECK
        ((finished_at IS NULL) = (failure IS NULL AND disagreements IS NULL)),
    CONSTRAINT reconcile_runs_found CHECK (num_nulls(at_rest, sales, in_flight, disagreements) IN (0, 4)),
    CONSTRAINT reconcile_runs_keyed CHECK (num_nulls(asker, key, fingerprint) IN (0, 3))
);
CREATE INDEX reconcile_runs_started_at ON reconcile_runs (started_at);
CREATE UNIQUE INDEX reconcile_runs_key ON reconcile_runs (asker, key) WHERE key IS NOT NULL;
