-- Jobs: all unpaid orders of a coupon are cancelled, in many transactions. A job counts in the transaction that closes
-- the orders, so a process that dies in the middle loses nothing and counts nothing twice.
CREATE TABLE jobs (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    coupon_id   bigint      NOT NULL,
    -- Name of the request, of the client's choice: a repeat finds this job.
    key         text        NOT NULL,
    reason      text        NOT NULL,
    -- Orders that this job has cancelled.
    cancelled   bigint      NOT NULL DEFAULT 0 CHECK (cancelled >= 0),
    finished_at timestamptz,
    -- Orders that were claimed later are left alone.
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT jobs_once UNIQUE (coupon_id, key)
);
CREATE INDEX jobs_open ON jobs (id) WHERE finished_at IS NULL;

-- Claims that a recovery could not keep wait until an administrator has settled them with their buyers.
ALTER TABLE recoveries
    ADD COLUMN settled_at timestamptz,
    ADD COLUMN note       text,
    ADD CONSTRAINT recoveries_settled CHECK ((settled_at IS NULL) = (note IS NULL));
CREATE INDEX recoveries_unsettled ON recoveries (id) WHERE settled_at IS NULL AND lost <> '[]';

-- Letters of a user, and of a coupon, newest first; letters are few.
CREATE INDEX dead_letters_of_user ON dead_letters (user_id, id) WHERE user_id IS NOT NULL;
CREATE INDEX dead_letters_by_coupon ON dead_letters (coupon_id, id) WHERE coupon_id IS NOT NULL;
