-- Orders of erased users, a bound on closed orders, and a mark behind deleted payments.

-- An order stays for the books without its buyer. A negative number is no user's; the order's own is unique, as the
-- indexes of live orders want it, and doesn't tell which orders were one person's.
ALTER TABLE orders
    DROP CONSTRAINT orders_user_id_check,
    -- Not validated: the older rule held, and is stricter.
    ADD CONSTRAINT orders_user_id_check CHECK (user_id > 0 OR user_id = -id) NOT VALID;

ALTER TABLE settings
    -- Settled payments of orders before this time have been deleted. Only grows. Ids of orders carry their second.
    ADD COLUMN payments_kept_from timestamptz NOT NULL DEFAULT '2022-01-01T00:00:00Z';

-- Whether a user has so many closed orders of a coupon behind the given order id. Claims of one user on one coupon are
-- counted one after the other until the end of their transactions: each sees the orders of those before it, because a
-- query of a volatile function has a snapshot of its own.
CREATE FUNCTION has_closed_orders(of_user bigint, of_coupon bigint, behind bigint, most bigint) RETURNS boolean
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(of_user::text, of_coupon));
    RETURN EXISTS (
        SELECT FROM orders
        WHERE user_id = of_user AND id > behind AND coupon_id = of_coupon AND NOT is_live(status)
        OFFSET most - 1);
END $$;
