-- Numbers of ids are handed out by Redis, and only below a ceiling that is noted here before: a Redis that lost its
-- sequence, or went back in time, goes on above the ceiling.
CREATE TABLE id_ceilings (
    -- Name of the sequence in Redis, which ends with its day.
    sequence   text        PRIMARY KEY,
    -- The last number that may be handed out.
    ceiling    bigint      NOT NULL CHECK (ceiling >= 0),
    updated_at timestamptz NOT NULL DEFAULT now()
);
