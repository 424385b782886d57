-- Running counts of the orders, by coupon and status: counting ten million rows takes seconds.
--
-- Triggers note each change in the transaction that makes it, so processes of any version are covered. A change is a row
-- of its own, because a counter would make all writers of a sale wait for each other until they commit. A pass adds the
-- changes up.

-- The sum of the changes that have been added up. An order counts here or in a change, never in both, since the pass
-- moves changes in one transaction.
CREATE TABLE order_counts (
    coupon_id bigint NOT NULL,
    status    text   NOT NULL,
    -- Below zero for a moment, when another process has added up a later change first.
    orders    bigint NOT NULL,
    CONSTRAINT order_counts_once PRIMARY KEY (coupon_id, status)
);

CREATE TABLE order_count_changes (
    coupon_id bigint NOT NULL,
    id        bigint GENERATED ALWAYS AS IDENTITY,
    status    text   NOT NULL,
    -- Orders more in this status.
    orders    bigint NOT NULL,
    CONSTRAINT order_count_changes_once PRIMARY KEY (coupon_id, id)
);

-- The audit counts the orders of one coupon after another, and goes on behind this one.
CREATE TABLE order_count_audit (
    only_row        boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    after_coupon_id bigint      NOT NULL DEFAULT 0,
    next_at         timestamptz NOT NULL DEFAULT now(),
    -- Coupons whose counts were wrong, since the beginning.
    corrected       bigint      NOT NULL DEFAULT 0
);
INSERT INTO order_count_audit DEFAULT VALUES;

CREATE FUNCTION count_new_orders() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO order_count_changes (coupon_id, status, orders)
        SELECT coupon_id, status, count(*) FROM now_there GROUP BY coupon_id, status;
    RETURN NULL;
END $$;

CREATE FUNCTION count_changed_orders() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO order_count_changes (coupon_id, status, orders)
        SELECT coupon_id, status, sum(orders)
        FROM (SELECT coupon_id, status, 1 AS orders FROM now_there
              UNION ALL
              SELECT coupon_id, status, -1 FROM was_there) AS change
        GROUP BY coupon_id, status HAVING sum(orders) <> 0;
    RETURN NULL;
END $$;

CREATE FUNCTION count_deleted_orders() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO order_count_changes (coupon_id, status, orders)
        SELECT coupon_id, status, -count(*) FROM was_there GROUP BY coupon_id, status;
    RETURN NULL;
END $$;

-- A trigger is made under a lock that waits for all writers, and that all later writers wait for; so is an index dropped.
-- A tenth of a second at a time: a transaction that writes for longer is let finish, and its successors don't queue up
-- behind it.
DO $$
BEGIN
    PERFORM set_config('lock_timeout', '100ms', true);
    LOOP
        BEGIN
            LOCK TABLE orders IN SHARE ROW EXCLUSIVE MODE;
            LOCK TABLE stock_returns IN ACCESS EXCLUSIVE MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
END $$;

CREATE TRIGGER orders_counted_when_new AFTER INSERT ON orders
    REFERENCING NEW TABLE AS now_there FOR EACH STATEMENT EXECUTE FUNCTION count_new_orders();
CREATE TRIGGER orders_counted_when_changed AFTER UPDATE ON orders
    REFERENCING OLD TABLE AS was_there NEW TABLE AS now_there
    FOR EACH STATEMENT EXECUTE FUNCTION count_changed_orders();
CREATE TRIGGER orders_counted_when_deleted AFTER DELETE ON orders
    REFERENCING OLD TABLE AS was_there FOR EACH STATEMENT EXECUTE FUNCTION count_deleted_orders();

-- No query of this version needs it, and Postgres preferred it to `stock_returns_waiting` (0009) for the rows of one sale:
-- all that is open was read then. Workers of older versions read all that is open for each batch from now on.
DROP INDEX stock_returns_open;
