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
    -- Every order, counted by status.
    orders        jsonb,
    -- How many disagreements there were, and the first of them: code, coupon_id, detail.
    disagreements bigint,
    findings      jsonb       NOT NULL DEFAULT '[]',
    -- What was done about them: code, coupon_id, detail, done.
    repairs       jsonb       NOT NULL DEFAULT '[]',
    CONSTRAINT reconcile_runs_finished CHECK
        ((finished_at IS NULL) = (failure IS NULL AND disagreements IS NULL)),
    CONSTRAINT reconcile_runs_found CHECK
        (num_nulls(at_rest, sales, in_flight, orders, disagreements) IN (0, 5))
);
CREATE INDEX reconcile_runs_started_at ON reconcile_runs (started_at);
