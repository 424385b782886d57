//! Shapes of the table `orders`: as it is, and with changes.

/// One shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Name in a table.
    pub name: &'static str,
    /// Statements that change the table.
    pub statements: &'static str,
}

/// The table as the migrations leave it.
pub const AS_IT_IS: Shape = Shape { name: "as it is", statements: "" };

const NO_CHECKS: &str = "
    DO $$ DECLARE name text;
    BEGIN
        FOR name IN SELECT conname FROM pg_constraint WHERE conrelid = 'orders'::regclass AND contype = 'c'
        LOOP EXECUTE 'ALTER TABLE orders DROP CONSTRAINT ' || quote_ident(name); END LOOP;
    END $$";

/// Shapes whose inserts are measured.
pub const INSERTED: [Shape; 10] = [
    AS_IT_IS,
    Shape {
        name: "without orders_pkey",
        statements: "ALTER TABLE orders DROP CONSTRAINT orders_pkey CASCADE",
    },
    Shape {
        name: "without orders_flash_one_live",
        statements: "DROP INDEX orders_flash_one_live",
    },
    Shape {
        name: "without orders_regular_one_unpaid",
        statements: "DROP INDEX orders_regular_one_unpaid",
    },
    Shape { name: "without orders_of_user", statements: "DROP INDEX orders_of_user" },
    Shape { name: "without orders_due", statements: "DROP INDEX orders_due" },
    Shape { name: "without orders_of_coupon", statements: "DROP INDEX orders_of_coupon" },
    Shape { name: "without orders_of_status", statements: "DROP INDEX orders_of_status" },
    Shape {
        name: "without any index",
        statements: "ALTER TABLE orders DROP CONSTRAINT orders_pkey CASCADE;
                     DROP INDEX orders_flash_one_live, orders_regular_one_unpaid, orders_of_user, orders_due,
                     orders_of_coupon, orders_of_status",
    },
    Shape { name: "without CHECKs", statements: NO_CHECKS },
];

/// Live and unpaid orders, told by the times that are set: the column `status` is in no index.
const BY_TIMES: &str = "
    DROP INDEX orders_flash_one_live, orders_regular_one_unpaid, orders_due, orders_of_coupon, orders_of_status;
    CREATE UNIQUE INDEX orders_flash_one_live ON orders (coupon_id, user_id)
        WHERE kind = 'flash' AND cancelled_at IS NULL AND expired_at IS NULL AND refunded_at IS NULL;
    CREATE UNIQUE INDEX orders_regular_one_unpaid ON orders (coupon_id, user_id)
        WHERE kind = 'regular' AND paid_at IS NULL AND cancelled_at IS NULL AND expired_at IS NULL;
    CREATE INDEX orders_due ON orders (created_at)
        WHERE paid_at IS NULL AND cancelled_at IS NULL AND expired_at IS NULL";

/// The same, and no index says that an order is unpaid: its payment changes no column of an index.
const LIVE_ONLY: &str = "
    DROP INDEX orders_flash_one_live, orders_regular_one_unpaid, orders_due, orders_of_coupon, orders_of_status;
    CREATE UNIQUE INDEX orders_flash_one_live ON orders (coupon_id, user_id)
        WHERE kind = 'flash' AND cancelled_at IS NULL AND expired_at IS NULL AND refunded_at IS NULL";

/// Shapes whose moves from unpaid to paid are measured.
pub const MOVED: [Shape; 3] = [
    AS_IT_IS,
    Shape { name: "indexes by times", statements: BY_TIMES },
    Shape { name: "no index of unpaid orders", statements: LIVE_ONLY },
];
