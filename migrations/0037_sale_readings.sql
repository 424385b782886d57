-- Digests of live orders beside their running counts, and the last full reading of each sale: a comparison of the stores
-- reads only sales that have changed since then.

-- Hash of a live order; 0 of a closed one. The sum over the orders of a coupon is the same in any order, and says whether
-- the set of its live orders is still the one that was read.
CREATE FUNCTION digest_of_order(status text, id bigint, user_id bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN is_live(status) THEN hashint8extended(id, user_id) ELSE 0 END $$;

-- The last full reading of a sale: its buyers in Redis, one by one, against its live orders.
CREATE TABLE sale_readings (
    coupon_id bigint      PRIMARY KEY,
    read_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Redis's side, just before: buyers, stock, returns, total, revision, epoch. Each claim and each return changes it.
    in_redis  text        NOT NULL,
    -- Postgres's side, in the snapshot that was read: the digest.
    in_postgres text      NOT NULL,
    -- Whether buyers and live orders were the same, and nothing was wrong.
    is_good   boolean     NOT NULL,
    -- Kinds of the findings.
    codes     text[]      NOT NULL DEFAULT '{}'
);

-- The audit reads the sale with the oldest reading, once a while.
CREATE TABLE sale_reading_audit (
    only_row boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    next_at  timestamptz NOT NULL DEFAULT now()
);
INSERT INTO sale_reading_audit DEFAULT VALUES;

ALTER TABLE reconcile_runs
    ADD COLUMN kind text NOT NULL DEFAULT 'full',
    -- Sales that hadn't changed since a good reading, and changed ones that were too large to be read now.
    ADD COLUMN unchanged bigint NOT NULL DEFAULT 0,
    ADD COLUMN waiting bigint NOT NULL DEFAULT 0,
    -- Oldest full reading of a sale when the comparison ended; none if one has never been read.
    ADD COLUMN oldest_reading_at timestamptz,
    ADD CONSTRAINT reconcile_runs_kind CHECK (kind IN ('full', 'changed')) NOT VALID;

-- Statements that write orders wait for this lock, and those behind them: a tenth of a second at a time. A transaction that
-- has noted a change without a digest has ended before.
DO $$
BEGIN
    PERFORM set_config('lock_timeout', '100ms', true);
    LOOP
        BEGIN
            LOCK TABLE order_count_changes, order_counts IN ACCESS EXCLUSIVE MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
END $$;

ALTER TABLE order_counts ADD COLUMN digest numeric NOT NULL DEFAULT 0;
ALTER TABLE order_count_changes ADD COLUMN digest numeric NOT NULL DEFAULT 0;

CREATE OR REPLACE FUNCTION count_new_orders() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO order_count_changes (coupon_id, status, orders, digest)
        SELECT coupon_id, status, count(*), sum(digest_of_order(status, id, user_id))
        FROM now_there GROUP BY coupon_id, status;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION count_changed_orders() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO order_count_changes (coupon_id, status, orders, digest)
        SELECT coupon_id, status, sum(orders), sum(digest)
        FROM (SELECT coupon_id, status, 1 AS orders, digest_of_order(status, id, user_id)::numeric AS digest
              FROM now_there
              UNION ALL
              SELECT coupon_id, status, -1, -digest_of_order(status, id, user_id)::numeric FROM was_there) AS change
        GROUP BY coupon_id, status HAVING sum(orders) <> 0 OR sum(digest) <> 0;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION count_deleted_orders() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO order_count_changes (coupon_id, status, orders, digest)
        SELECT coupon_id, status, -count(*), -sum(digest_of_order(status, id, user_id))
        FROM was_there GROUP BY coupon_id, status;
    RETURN NULL;
END $$;
