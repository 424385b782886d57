//! Postgres's side of a comparison: the expected sale, its live orders, and the count of all orders.
//!
//! Large tables are read in pages, so that no statement comes near the time limit of the pool. Where numbers
//! have to be of one moment, the pages are read in one snapshot.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use sqlx::PgPool;

use crate::sale::coupon::model::CouponState;
use crate::sale::ids::{CouponId, OrderId, UserId};
use crate::sale::order::live;

/// Rows counted at a time.
const PAGE_ROWS: i64 = 100_000;

/// A sale in Postgres.
pub struct Terms {
    pub total: i64,
    pub state: CouponState,
    pub revision: i64,
    pub opens_at: DateTime<Utc>,
    pub closes_at: DateTime<Utc>,
    /// Epoch of the lane; none while a recovery takes its sales over into a new one.
    pub epoch: Option<i64>,
    /// Time since the last change.
    pub changed_ms_ago: i64,
}

/// The terms of a sale that Redis has to hold; `None` once it has been archived.
pub async fn terms(pool: &PgPool, coupon: CouponId) -> sqlx::Result<Option<Terms>> {
    sqlx::query_as!(
        Terms,
        r#"SELECT total, state AS "state: CouponState", revision, opens_at, closes_at,
                  (SELECT epoch FROM lanes WHERE lane = (coupon_id & 1023) AND lanes.state = 'open') AS epoch,
                  (extract(epoch FROM clock_timestamp() - coupons.updated_at) * 1000)::bigint AS "changed_ms_ago!"
           FROM coupons JOIN flash_sales ON coupon_id = id
           WHERE id = $1 AND loaded_at IS NOT NULL AND archived_at IS NULL"#,
        coupon.get(),
    )
    .fetch_optional(pool)
    .await
}

/// Units of a sale, as Postgres counts them.
pub struct Units {
    pub total: i64,
    pub sold: i64,
}

/// Tells `each` about every live order of a flash coupon; all of them, and the units, are of one moment.
pub async fn each_live(
    pool: &PgPool,
    coupon: CouponId,
    mut each: impl FnMut(UserId, OrderId),
) -> sqlx::Result<Units> {
    let mut snapshot = pool.begin_with(live::SNAPSHOT).await?;
    let query = sqlx::query_as!(
        Units,
        "SELECT total, sold FROM flash_sales WHERE coupon_id = $1",
        coupon.get(),
    );
    let units = query.fetch_one(&mut *snapshot).await?;
    let mut after = None;
    loop {
        let page = live::live_page(&mut *snapshot, coupon, after, live::SNAPSHOT_PAGE).await?;
        let Some((last, _)) = page.last() else {
            snapshot.rollback().await?;
            return Ok(units);
        };
        after = Some(*last);
        page.into_iter().for_each(|(user, order)| each(user, order));
    }
}

/// Count of all orders.
#[derive(Default)]
pub struct AllOrders {
    /// Orders of flash coupons by lane, in any status: the log entries that became rows.
    pub of_lane: HashMap<i32, i64>,
    /// Orders by status, regular ones included.
    pub of_status: BTreeMap<String, i64>,
}

/// Counts every order. Reads the whole table, in pages: an order that is inserted meanwhile may be counted or not;
/// each order that was there at the beginning is.
pub async fn count_all(pool: &PgPool) -> sqlx::Result<AllOrders> {
    let mut all = AllOrders::default();
    let mut after = 0;
    loop {
        let rows = sqlx::query!(
            r#"SELECT kind = 'flash' AS "flash!", (coupon_id & 1023)::integer AS "lane!",
                      status, count(*) AS "count!", max(id) AS "last!"
               FROM (SELECT id, kind, coupon_id, status FROM orders
                     WHERE id > $1 ORDER BY id LIMIT $2) AS page
               GROUP BY 1, 2, 3"#,
            after,
            PAGE_ROWS,
        )
        .fetch_all(pool)
        .await?;
        if rows.is_empty() {
            return Ok(all);
        }
        for row in rows {
            after = after.max(row.last);
            *all.of_status.entry(row.status).or_default() += row.count;
            if row.flash {
                *all.of_lane.entry(row.lane).or_default() += row.count;
            }
        }
    }
}
