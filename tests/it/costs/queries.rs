//! The queries whose plans are run on large tables, and those that are not, with the reason.
//!
//! A query that is in neither table has to be cheap by its plan alone: by a key, or in a table that stays small
//! (`plans.rs`).

/// One query: its purpose, words by which it is found, its arguments, and the number of rows that it asks for.
pub(super) type Row = (&'static str, &'static str, &'static str, f64);

/// In arguments, `{first}` and `{second}` are the two sales, `{third}` is one that has ended, `{counted}` one whose counts
/// have 300 changes, and `{thousand}` is so many ids.
pub(super) const QUERIES: [Row; 80] = [
    ("the newest coupon", "SELECT (SELECT max(id) FROM coupons)", "", 2.0),
    (
        "opened payments that may be too old",
        "AS \"is_old!\" FROM opened_payments",
        "0, now(), 1000",
        1_000.0,
    ),
    (
        "jobs, with the orders that wait for each",
        "SELECT id AS \"job_id: JobId\"",
        "NULL, 21, 1000",
        1_021.0,
    ),
    (
        "closed orders of a user",
        "SELECT id FROM orders WHERE user_id = $1 AND id > $2 AND coupon_id = $3",
        "20, 0, {first}, 19",
        1.0,
    ),
    ("payments of a user's orders", "SELECT to_jsonb(payments)", "{thousand}", 1_000.0),
    (
        "payments that may be too old",
        "status IN ('refunded', 'closed') AND updated_at < $2",
        "0, now(), 1000, 0",
        1_000.0,
    ),
    (
        "returns that may be too old",
        "SELECT order_id FROM stock_returns WHERE order_id > $1",
        "0, 9223372036854775807, 1000",
        1_000.0,
    ),
    (
        "orders that may be over",
        "AS \"is_over!\" FROM orders WHERE id > $1 AND id < $2",
        "0, 9223372036854775807, now(), 500",
        500.0,
    ),
    (
        "orders that move into the history",
        "SELECT id FROM orders WHERE id = ANY($1) AND status IN ('redeemed'",
        "{thousand}, now()",
        1_000.0,
    ),
    (
        "payments that move with their orders",
        "WITH gone AS (DELETE FROM payments",
        "{thousand}",
        2_000.0,
    ),
    (
        "returns that move with their orders",
        "WITH gone AS (DELETE FROM stock_returns",
        "{thousand}",
        2_000.0,
    ),
    (
        "a user's orders in the history",
        "FROM order_history WHERE user_id = $1 AND id >= $2 AND id < coalesce($3",
        "7, 0, NULL, 21",
        21.0,
    ),
    (
        "a user's last order of a coupon in the history",
        "FROM order_history WHERE user_id = $1 AND coupon_id = $2 AND id >= $3",
        "7, 1, 0, NULL",
        10.0,
    ),
    (
        "moved orders of a user, searched",
        "FROM order_history WHERE user_id = $1 AND coupon_id = coalesce($2, coupon_id)",
        "7, NULL, NULL, NULL, NULL, NULL, NULL, 0, 9223372036854775807, 21",
        21.0,
    ),
    (
        "moved buyers of a coupon",
        "SELECT * FROM order_history WHERE coupon_id = $9",
        "'{redeemed,cancelled,expired,refunded}', NULL, NULL, NULL, NULL, 0, 9223372036854775807, 21, 1",
        21.0,
    ),
    (
        "moved orders of all statuses",
        "SELECT * FROM order_history WHERE order_history.status = one.status",
        "'{redeemed,cancelled,expired,refunded}', NULL, NULL, NULL, NULL, 0, 9223372036854775807, 21",
        21.0,
    ),
    ("a payment by its id, here or in the history", "FROM every_payment WHERE id = $1", "7", 2.0),
    (
        "settled items that may be too old",
        "AS \"is_old!\" FROM postponed_settled",
        "0, now(), 1000",
        1_000.0,
    ),
    (
        "settled items that are too old",
        "DELETE FROM postponed_settled WHERE id = ANY($1)",
        "'{300003,400000}'",
        2.0,
    ),
    (
        "orders in the history by their ids",
        "FROM order_history WHERE id = ANY($1)",
        "'{1000007,1200007}'",
        2.0,
    ),
    (
        "a payment in the history",
        "SELECT order_id AS \"order: OrderId\" FROM payment_history",
        "'external', '7'",
        1.0,
    ),
    ("an order by its redemption code", "FROM every_redemption WHERE code = $1", "'7'", 1.0),
    ("letters that may be too old", "AS \"is_old!\" FROM dead_letters", "0, now(), 1000", 1_000.0),
    (
        "letters that are too old",
        "DELETE FROM dead_letters WHERE id = ANY($1)",
        "{thousand}, now()",
        1_000.0,
    ),
    (
        "orders of a user, searched",
        "SELECT id AS \"id: OrderId\" FROM orders WHERE user_id = $1 AND coupon_id = coalesce($2, coupon_id)",
        "3000, NULL, NULL, NULL, NULL, NULL, NULL, 21",
        21.0,
    ),
    (
        "orders of all statuses",
        "SELECT id, claimed_at FROM orders WHERE orders.status = one.status",
        "'{unpaid,paid,redeemed,cancelled,expired,refunding,refunded}', NULL, NULL, NULL, NULL, 21",
        21.0,
    ),
    (
        "buyers of a coupon",
        "SELECT id, claimed_at FROM orders WHERE coupon_id = $7",
        "'{unpaid,paid,redeemed,cancelled,expired,refunding,refunded}', NULL, NULL, NULL, NULL, 21, {first}",
        21.0,
    ),
    (
        "a refund",
        "UPDATE payments SET status = 'refunding', refund_reason = 'asked_for'",
        "3000",
        1.0,
    ),
    (
        "payments to refund",
        "WITH new AS ( SELECT id, gateway, gateway_payment_id, amount_cents FROM payments",
        "60, 100",
        200.0,
    ),
    (
        "payments that wait",
        "SELECT payments.* FROM payments WHERE $3 AND status = 'refunding'",
        "NULL, 21, true, true",
        42.0,
    ),
    (
        "held payments",
        "FROM payments WHERE status = 'held' AND id = ANY",
        "3600, 100, ARRAY[]::bigint[]",
        100.0,
    ),
    (
        "a payment that is back",
        "SELECT order_id AS \"order_id: OrderId\", status AS \"status: PaymentStatus\"",
        "'external', '7'",
        1.0,
    ),
    (
        "coupons with units on their way",
        "WITH RECURSIVE step (number, coupon_id) AS",
        "'unit', NULL, 'stock_returns', 100",
        2.0,
    ),
    (
        "units of a large backlog",
        "user_id AS \"user_id: UserId\" FROM stock_returns WHERE",
        "'unit', {first}, 1000, false",
        1_000.0,
    ),
    (
        "units of a small sale",
        "user_id AS \"user_id: UserId\" FROM stock_returns WHERE",
        "'unit', {second}, 1000, true",
        5.0,
    ),
    ("closing returns", "UPDATE stock_returns SET done_at = now()", "{thousand}, 'unit'", 1_000.0),
    (
        "orders that are late, to be closed",
        "WITH due AS ( SELECT id FROM orders",
        "900, 500",
        1_000.0,
    ),
    (
        "orders that are late",
        "SELECT id AS \"order_id: OrderId\", coupon_id AS \"coupon_id: CouponId\" FROM orders WHERE status = 'unpaid'",
        "900, 500",
        500.0,
    ),
    (
        "closing some orders",
        "WITH these AS ( SELECT id FROM orders",
        "{thousand}, 'expired'",
        2_000.0,
    ),
    (
        "orders that wait for a job",
        "SELECT orders.id AS \"id: OrderId\" FROM jobs JOIN orders USING (coupon_id)",
        "1, 500",
        500.0,
    ),
    ("the end of a job", "UPDATE jobs SET finished_at = now()", "1", 2.0),
    (
        "payments that are settled",
        "FROM every_payment WHERE status IN ('refunded', 'closed') AND id <",
        "NULL, 21",
        21.0,
    ),
    ("cancelling an order", "UPDATE orders SET status = 'cancelled'", "5", 1.0),
    (
        "a user's orders",
        "FROM orders WHERE user_id = $1 AND id = coalesce($2, id)",
        "7, NULL, NULL, 21",
        21.0,
    ),
    (
        "a user's last order of a coupon",
        "FROM orders WHERE user_id = $1 AND coupon_id = $2 ORDER BY id DESC LIMIT 1",
        "20, {first}",
        1.0,
    ),
    (
        "a user's live order of a coupon",
        "FROM orders WHERE coupon_id = $1 AND user_id = $2 AND (kind = 'regular'",
        "{first}, 20",
        1.0,
    ),
    (
        "live orders of a sale",
        "AND kind = 'flash' AND user_id > $2 AND is_live(status) ORDER BY user_id LIMIT",
        "{first}, 0, 1000",
        1_000.0,
    ),
    (
        "dead letters that become orders",
        "FROM dead_letters WHERE coupon_id = $1 AND resolved_at IS NULL ORDER BY order_id",
        "{first}",
        100.0,
    ),
    (
        "dead letters that are given up",
        "UPDATE dead_letters SET resolved_at = now(), updated_at = now(), detail",
        "{first}",
        100.0,
    ),
    (
        "open dead letters of a coupon",
        "SELECT order_id AS \"order_id!: OrderId\" FROM dead_letters WHERE coupon_id = $1 AND resolved_at IS NULL AND NOT EXISTS",
        "{first}",
        200.0,
    ),
    (
        "dead letters that are tried again",
        "FROM dead_letters WHERE resolved_at IS NULL AND id > $1 AND reason",
        "0, NULL, 100",
        100.0,
    ),
    (
        "the number of open dead letters",
        "SELECT count(*) AS \"count!\" FROM dead_letters WHERE resolved_at IS NULL",
        "",
        100.0,
    ),
    ("postponed items", "FROM postponed WHERE id < coalesce", "NULL, NULL, 21", 21.0),
    (
        "postponed items that are due",
        "SELECT item FROM postponed WHERE pass = $1 AND next_try_at <= now()",
        "'refunds', 20",
        20.0,
    ),
    (
        "forgetting what was postponed",
        "DELETE FROM postponed WHERE pass = $1 AND item",
        "'refunds', ARRAY[1000, 2000]",
        2.0,
    ),
    (
        "rows by their ids",
        "SELECT id AS \"id: OrderId\", user_id AS \"user_id: UserId\", is_live",
        "{thousand}, {first}",
        1_000.0,
    ),
    (
        "rows of entries",
        "END AS \"user: UserId\" FROM orders WHERE id = ANY($1)",
        "{thousand}",
        1_000.0,
    ),
    (
        "open returns and places among orders",
        "SELECT order_id AS \"order_id: OrderId\" FROM stock_returns WHERE order_id = ANY($1) AND done_at",
        "{thousand}",
        1_000.0,
    ),
    (
        "open returns among orders",
        "FROM stock_returns WHERE order_id = ANY($1) AND what",
        "{thousand}",
        1_000.0,
    ),
    (
        "orders of a coupon by status",
        "FROM (SELECT status, orders FROM order_counts WHERE coupon_id = $1",
        "{counted}",
        310.0,
    ),
    (
        "live orders of a sale by the running counts",
        "FROM flash_sales AS sale CROSS JOIN LATERAL",
        "ARRAY[{counted}]::bigint[]",
        310.0,
    ),
    (
        "changes of counts, added up",
        "WITH taken AS ( DELETE FROM order_count_changes",
        "10000",
        20_000.0,
    ),
    ("the next coupon of the audit", "UPDATE order_count_audit SET after_coupon_id", "300", 3.0),
    (
        "sales that may be archived",
        "AND state = 'ended' AND applied_revision = revision",
        "0, 0, 100",
        500.0,
    ),
    (
        "a sale that is archived",
        "AND EXISTS (SELECT FROM coupons WHERE id = $1 AND state = 'ended' AND revision",
        "{third}",
        6.0,
    ),
    (
        "open things of a sale",
        "(SELECT count(*) FROM stock_returns WHERE what = ANY('{unit,place}') AND coupon_id = $1",
        "{second}",
        55.0,
    ),
    (
        "units of a sale on their way",
        "WHERE coupon_id = $1 AND what = 'unit' AND done_at IS NULL",
        "{second}",
        5.0,
    ),
    (
        "all units on their way",
        "SELECT count(*) AS \"count!\" FROM stock_returns WHERE done_at IS NULL AND what = 'unit'",
        "",
        100_000.0,
    ),
    (
        "unpaid orders, page by page",
        "FROM orders WHERE status = 'unpaid' AND kind = 'flash' AND (claimed_at, id)",
        "NULL, 0, 1000",
        1_000.0,
    ),
    (
        "live orders of a lane since then",
        "WHERE id >= $1 AND kind = 'flash' AND (coupon_id & 1023)::integer = $2",
        "299000, 0",
        1_000.0,
    ),
    (
        "dead letters without a live order",
        "SELECT id, user_id AS \"user_id!: UserId\", order_id AS \"order_id!: OrderId\" FROM dead_letters",
        "{first}",
        200.0,
    ),
    ("payments that wait, counted", "SELECT held.count AS \"held!\"", "", 120_000.0),
    ("postponed items, counted", "FROM postponed GROUP BY pass", "", 300_000.0),
    ("old changes of the staff", "DELETE FROM audit WHERE id = ANY(ARRAY(", "0, 1000", 2_000.0),
    (
        "coupons, page by page",
        "FROM coupons LEFT JOIN flash_sales ON coupon_id = id WHERE id < coalesce($1",
        "NULL, 51",
        102.0,
    ),
    (
        "coupons of a kind and state, page by page",
        "SELECT * FROM coupons WHERE (coupons.kind, coupons.state, id) >=",
        "'{regular,flash}', '{active,paused,ended}', NULL, 51",
        102.0,
    ),
    (
        "orders found by a search",
        "NULL::text AS \"redemption_code: RedemptionCode\" FROM orders WHERE id = ANY($1)",
        "{thousand}",
        2_000.0,
    ),
    (
        "sales in Redis, page by page",
        "SELECT coupon_id AS \"coupon_id: CouponId\", revision FROM flash_sales JOIN coupons",
        "NULL, 100",
        200.0,
    ),
    (
        "sales in Redis with a change, of which there is none",
        "AND applied_revision < revision AND",
        "NULL, 100",
        200.0,
    ),
    (
        "sales that are over",
        "AND state <> 'ended' AND closes_at < now() - $1",
        "0, NULL, 100",
        100.0,
    ),
];

/// Queries that read more, and the reason. None is run by a request of a user, or again and again.
pub(super) const OTHERS: [(&str, &str); 14] = [
    (
        "count(*) AS \"claims!\" FROM every_order WHERE id >= $1 AND id < $2",
        "the orders of a day, for an operator, one count at a time: a range of the key, within 8 s",
    ),
    (
        "SELECT count(*) AS \"letters!\" FROM dead_letters WHERE coupon_id = $1",
        "the dead letters of one coupon, for an operator who looks at it",
    ),
    (
        "FROM audit WHERE subject_id = ANY($1) AND action = ANY($2)",
        "the book of changes about one user's things, for an operator who exports the user",
    ),
    ("UPDATE audit SET after = after - 'note'", "the same for an operator who erases the user"),
    (
        "WHERE loaded_at IS NOT NULL AND removed_at IS NULL ORDER BY coupon_id",
        "the sales that Redis holds, for an operator who exports or erases a user",
    ),
    (
        "FROM postponed_settled WHERE ($2::text IS NULL OR pass = $2)",
        "a page of settled items; `no_list_of_settled_items_reads_more_than_ten_pages` runs it with each filter",
    ),
    (
        "FROM dead_letters WHERE ($1 AND resolved_at IS NULL",
        "a page of letters; `no_list_of_dead_letters_reads_more_than_ten_pages` runs it with each filter",
    ),
    (
        "SELECT kind IS DISTINCT FROM 'regular'",
        "the count of all orders: a row for each coupon and status, and the changes of the last second",
    ),
    (
        "SELECT $1, status, sum(orders), sum(digest) FROM (SELECT status, count(*)",
        "the slow audit of the running counts: the orders of one coupon, in a twentieth of the time",
    ),
    (
        "SELECT count(*) AS \"count!\" FROM dead_letters WHERE lane = $1",
        "letters of a lane, once its orders alone are fewer than its acknowledged claims",
    ),
    (
        "sold = (SELECT count(*) FROM orders",
        "the live orders of a sale, which an operator has counted again",
    ),
    (
        "SET done_at = NULL, updated_at = now() WHERE done_at >= $1",
        "the outbox, once in the recovery of a lane whose Redis went back in time",
    ),
    (
        "SET removed_at = NULL, updated_at = now() WHERE removed_at IS NOT NULL",
        "a row for each sale, once in such a recovery",
    ),
    (
        "max(created_at - claimed_at)",
        "the live orders of one sale, once at the end of a storm of a demo",
    ),
];
