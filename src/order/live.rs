//! Live orders, and orders by their ids.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{PgExecutor, PgPool};

use crate::base::limits;
use crate::store::ids::{CouponId, Lane, OrderId, UserId, order_id};
use crate::store::postgres;

/// Live orders compared at a time; more would hold up all other requests.
pub const PAGE: usize = 1_000;

/// Live orders read from a snapshot at a time; a page takes some 10 ms.
pub const SNAPSHOT_PAGE: i64 = 10_000;

/// An unpaid order of a flash coupon.
pub struct Unpaid {
    pub order: OrderId,
    pub user: UserId,
}

/// Live orders of a flash coupon, by user, from after user `after`.
pub async fn live_page(
    executor: impl PgExecutor<'_>,
    coupon: CouponId,
    after: Option<UserId>,
    limit: i64,
) -> sqlx::Result<Vec<(UserId, OrderId)>> {
    let rows = sqlx::query!(
        r#"SELECT user_id AS "user_id: UserId", id AS "id: OrderId" FROM orders
           WHERE coupon_id = $1 AND kind = 'flash' AND user_id > $2
             AND is_live(status)
           ORDER BY user_id LIMIT $3"#,
        coupon.get(),
        after.map_or(0, UserId::get),
        limit,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.id)).collect())
}

/// Unpaid orders of flash coupons in this lane after order `behind`, oldest first.
pub async fn unpaid_page(
    executor: impl PgExecutor<'_>,
    lane: Lane,
    behind: Option<OrderId>,
) -> sqlx::Result<Vec<Unpaid>> {
    sqlx::query_as!(
        Unpaid,
        r#"SELECT id AS "order: OrderId", user_id AS "user: UserId" FROM orders
           WHERE (status, id) > ('unpaid', $1) AND (status, id) <= ('unpaid', 9223372036854775807) AND kind = 'flash'
             AND (coupon_id & 1023)::integer = $3
           ORDER BY status, id LIMIT $2"#,
        behind.map_or(0, OrderId::get),
        i64::try_from(PAGE).unwrap_or(i64::MAX),
        lane.get(),
    )
    .fetch_all(executor)
    .await
}

/// Number of orders of flash coupons in this lane, in any status, that were claimed since a time on Redis's clock, or
/// written since a time on Postgres's. A claim whose entry is gone has only the second in its id. The clocks may differ
/// by [`limits::CLOCKS_MARGIN`].
pub async fn count_since(
    pool: &PgPool,
    lane: Lane,
    claimed_since: DateTime<Utc>,
    written_since: DateTime<Utc>,
) -> sqlx::Result<i64> {
    let margin = TimeDelta::from_std(limits::CLOCKS_MARGIN).unwrap_or_default();
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "orders!" FROM orders
           WHERE id >= $1 AND (coupon_id & 1023)::integer = $2 AND kind = 'flash'
             AND (id >= $3 OR created_at >= $4)"#,
        order_id::first_at(claimed_since - margin),
        lane.get(),
        // By the id, which has Redis's second. `claimed_at` is never later than Postgres's clock.
        order_id::first_at(claimed_since),
        written_since,
    )
    .fetch_one(pool)
    .await
}

/// The highest order id of this lane whose time is in `after..before`.
pub async fn highest_between(
    pool: &PgPool,
    lane: Lane,
    (after, before): (DateTime<Utc>, DateTime<Utc>),
) -> sqlx::Result<Option<OrderId>> {
    sqlx::query_scalar!(
        r#"SELECT max(id) AS "id: OrderId" FROM orders
           WHERE id >= $1 AND id < $2 AND (id >> 26) & 63 = $3"#,
        order_id::first_at(after),
        order_id::first_at(before),
        i64::from(lane.get()),
    )
    .fetch_one(pool)
    .await
}

/// The newest order of this coupon for each of these users, in any status.
pub async fn newest_of(
    pool: &PgPool,
    coupon: CouponId,
    users: &[i64],
) -> sqlx::Result<HashMap<UserId, OrderId>> {
    let mut tx = postgres::begin_planning(pool).await?;
    let rows = sqlx::query!(
        r#"SELECT user_id AS "user_id: UserId", max(id) AS "order_id!: OrderId" FROM orders
           WHERE user_id = ANY($1) AND coupon_id = $2 GROUP BY user_id"#,
        users,
        coupon.get(),
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.order_id)).collect())
}

/// Looks up orders of this coupon: the user of each, and whether the order is live.
pub async fn by_id(
    pool: &PgPool,
    coupon: CouponId,
    orders: impl Iterator<Item = OrderId>,
) -> sqlx::Result<HashMap<OrderId, (UserId, bool)>> {
    let ids: Vec<i64> = orders.map(OrderId::get).collect();
    let mut tx = postgres::begin_planning(pool).await?;
    let rows = sqlx::query!(
        r#"SELECT id AS "id: OrderId", user_id AS "user_id: UserId",
                  is_live(status) AS "live!"
           FROM orders WHERE id = ANY($1) AND coupon_id = $2"#,
        &ids,
        coupon.get(),
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(rows.into_iter().map(|row| (row.id, (row.user_id, row.live))).collect())
}
