//! Running counts of orders by coupon and status. Owner of the tables `order_counts`, `order_count_changes` and
//! `order_count_audit`.
//!
//! # Model
//!
//! Triggers on `orders` (`migrations/0028_order_counts.sql`) note each change of a count in the transaction that makes
//! it, as a row of its own: no writer waits for another. A pass adds these rows up. A count is the sum of both tables,
//! read by one statement and hence at one moment. So a count is exact at every moment, also while processes of older
//! versions write, and while no pass runs.
//!
//! Beside each count stands a digest of the live orders: the sum of a hash of each, so that two sets can be told apart
//! without reading either. Comparisons of the stores use it to see whether a sale has changed.
//!
//! # Audit
//!
//! The same pass counts the orders of one coupon after another (`audit.rs`), and corrects a count that is wrong: a
//! restored table, or a statement that ran with triggers off.

// The slow full count.
mod audit;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sqlx::{PgExecutor, PgPool};

use crate::base::limits;
use crate::base::telemetry::Metrics;
use crate::kit::postgres;
use crate::sale::ids::CouponId;

/// Count of all orders.
#[derive(Default)]
pub struct AllOrders {
    /// Orders of flash coupons by lane, in any status: the log entries that became rows.
    pub of_lane: HashMap<i32, i64>,
    /// Orders by status, regular ones included.
    pub of_status: BTreeMap<String, i64>,
}

/// Keeps the counts short and right.
pub struct OrderCounts {
    pool: PgPool,
    metrics: Arc<Metrics>,
}

impl OrderCounts {
    /// Counts in this database.
    pub fn new(pool: PgPool, metrics: Arc<Metrics>) -> Self {
        Self { pool, metrics }
    }

    /// Adds changes up for a bounded time; then audits the next coupon, if that is due.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer; the next pass goes on.
    pub async fn pass(&self) -> sqlx::Result<()> {
        for _ in 0..limits::PASS_BATCHES_MAX {
            if self.add_up().await? < limits::ORDER_COUNTS_BATCH {
                break;
            }
        }
        self.audit_next().await.map(drop)
    }

    /// Adds up one batch of changes. Returns their number. Processes that do so at one moment take different changes.
    async fn add_up(&self) -> sqlx::Result<i64> {
        // Rows are deleted by their place in the table, whatever the plan was made for; in the order of the coupons, so
        // that two processes never wait for each other in a circle.
        let mut tx = postgres::begin_planning(&self.pool).await?;
        let count = sqlx::query_scalar!(
            r#"WITH taken AS (
                   DELETE FROM order_count_changes WHERE ctid = ANY(ARRAY(
                       SELECT ctid FROM order_count_changes ORDER BY coupon_id, id LIMIT $1 FOR UPDATE SKIP LOCKED))
                   RETURNING coupon_id, status, orders, digest),
               added AS (
                   INSERT INTO order_counts AS counted (coupon_id, status, orders, digest)
                   SELECT coupon_id, status, sum(orders), sum(digest) FROM taken
                   GROUP BY coupon_id, status ORDER BY coupon_id, status
                   ON CONFLICT ON CONSTRAINT order_counts_once
                       DO UPDATE SET orders = counted.orders + excluded.orders,
                                     digest = counted.digest + excluded.digest)
               SELECT count(*) AS "count!" FROM taken"#,
            limits::ORDER_COUNTS_BATCH,
        )
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(count)
    }
}

/// Orders of this coupon by status, those in the history and in its dropped months included.
pub async fn of_coupon(pool: &PgPool, coupon: CouponId) -> sqlx::Result<BTreeMap<String, i64>> {
    let rows = sqlx::query!(
        r#"SELECT status AS "status!", sum(orders)::bigint AS "orders!"
           FROM (SELECT status, orders FROM order_counts WHERE coupon_id = $1
                 UNION ALL
                 SELECT status, orders FROM order_count_changes WHERE coupon_id = $1
                 UNION ALL
                 SELECT status, orders FROM moved_order_counts WHERE coupon_id = $1) AS counted
           GROUP BY status HAVING sum(orders) <> 0"#,
        coupon.get(),
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|row| (row.status, row.orders)).collect())
}

/// The live orders of a sale by its running counts, and its units, of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveOrders {
    /// Live orders.
    pub orders: i64,
    /// Their digest: the sum of a hash of each.
    pub digest: String,
    /// Units on offer.
    pub total: i64,
    /// Units sold, by the sale's own count.
    pub sold: i64,
}

/// The live orders of these flash coupons, all at one moment.
pub async fn live(
    executor: impl PgExecutor<'_>,
    coupons: &[CouponId],
) -> sqlx::Result<HashMap<CouponId, LiveOrders>> {
    let coupons: Vec<i64> = coupons.iter().map(|coupon| coupon.get()).collect();
    let rows = sqlx::query!(
        r#"SELECT sale.coupon_id AS "coupon: CouponId", total, sold, orders AS "orders!", digest AS "digest!"
           FROM flash_sales AS sale CROSS JOIN LATERAL (
               SELECT coalesce(sum(orders), 0)::bigint AS orders, coalesce(sum(digest), 0)::text AS digest
               FROM (SELECT status, orders, digest FROM order_counts WHERE coupon_id = sale.coupon_id
                     UNION ALL
                     SELECT status, orders, digest FROM order_count_changes WHERE coupon_id = sale.coupon_id) AS counted
               WHERE is_live(status)) AS live
           WHERE sale.coupon_id = ANY($1)"#,
        &coupons,
    )
    .fetch_all(executor)
    .await?;
    let live = rows.into_iter().map(|row| {
        let (orders, digest, total, sold) = (row.orders, row.digest, row.total, row.sold);
        (row.coupon, LiveOrders { orders, digest, total, sold })
    });
    Ok(live.collect())
}

/// Count of every order that there has been, at one moment.
pub async fn all(pool: &PgPool) -> sqlx::Result<AllOrders> {
    let rows = sqlx::query!(
        r#"SELECT kind IS DISTINCT FROM 'regular' AS "flash!", (coupon_id & 1023)::integer AS "lane!",
                  status AS "status!", sum(orders)::bigint AS "orders!"
           FROM (SELECT coupon_id, status, orders FROM order_counts
                 UNION ALL
                 SELECT coupon_id, status, orders FROM order_count_changes
                 UNION ALL
                 SELECT coupon_id, status, orders FROM moved_order_counts) AS counted
                LEFT JOIN coupons ON coupons.id = coupon_id
           GROUP BY 1, 2, 3 HAVING sum(orders) <> 0"#
    )
    .fetch_all(pool)
    .await?;
    let mut all = AllOrders::default();
    for row in rows {
        *all.of_status.entry(row.status).or_default() += row.orders;
        if row.flash {
            *all.of_lane.entry(row.lane).or_default() += row.orders;
        }
    }
    Ok(all)
}
