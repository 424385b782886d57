-- Items that were postponed, and of which nothing is left to do: dealt with, or gone. Kept for a time (`--postponed-days`).
-- An older version deletes what is settled without a trace.
CREATE TABLE postponed_settled (
    -- That of the row of `postponed`.
    id         bigint      NOT NULL,
    pass       text        NOT NULL,
    item       bigint      NOT NULL,
    since      timestamptz NOT NULL,
    tries      bigint      NOT NULL,
    error      text        NOT NULL,
    settled_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT postponed_settled_once PRIMARY KEY (id)
);
-- Of one pass, newest first.
CREATE INDEX postponed_settled_of_pass ON postponed_settled (pass, id);
