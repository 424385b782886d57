//! Rows of units and places to be released, written in the transaction that gives them up.

use std::collections::HashSet;

use sqlx::{PgConnection, PgPool};

use crate::coupon::model::CouponKind;
use crate::store::ids::{CouponId, OrderId, UserId};
use crate::store::postgres;

/// An order that was closed, or moved otherwise.
#[derive(Clone, Debug)]
pub struct StockReturn {
    pub order_id: OrderId,
    pub coupon_id: CouponId,
    pub user_id: UserId,
    /// Only a flash coupon's order holds a unit.
    pub kind: CouponKind,
}

/// Notes that the units of closed orders have to be released, in the transaction that closes the orders. Skips regular
/// coupons, which have no units.
pub async fn insert(tx: &mut PgConnection, closed: &[StockReturn]) -> sqlx::Result<()> {
    let units = || closed.iter().filter(|one| one.kind == CouponKind::Flash);
    let orders: Vec<i64> = units().map(|one| one.order_id.get()).collect();
    let coupons: Vec<i64> = units().map(|one| one.coupon_id.get()).collect();
    let users: Vec<i64> = units().map(|one| one.user_id.get()).collect();
    sqlx::query!(
        "INSERT INTO stock_returns (order_id, coupon_id, user_id)
         SELECT * FROM UNNEST($1::bigint[], $2::bigint[], $3::bigint[])",
        &orders,
        &coupons,
        &users,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Notes that an order is no longer unpaid, in the transaction that pays it. Only flash coupons have places.
pub async fn insert_place(tx: &mut PgConnection, order: OrderId) -> sqlx::Result<()> {
    sqlx::query!(
        "INSERT INTO stock_returns (order_id, what, coupon_id, user_id)
         SELECT id, 'place', coupon_id, user_id FROM orders WHERE id = $1 AND kind = 'flash'",
        order.get(),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Which of these closed orders have a unit that hasn't been released yet.
pub async fn open_among(pool: &PgPool, orders: &[i64]) -> sqlx::Result<HashSet<OrderId>> {
    let mut tx = postgres::begin_planning(pool).await?;
    let open = sqlx::query_scalar!(
        // By the key. With IS NULL, a stale plan would scan all open rows by another index.
        r#"SELECT order_id AS "order_id: OrderId" FROM stock_returns
           WHERE order_id = ANY($1) AND what = 'unit' AND coalesce(done_at, 'infinity') = 'infinity'"#,
        orders,
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(open.into_iter().collect())
}

/// Number of units to be released.
pub async fn count_open(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM stock_returns WHERE done_at IS NULL AND what = 'unit'"#
    )
    .fetch_one(pool)
    .await
}

/// Number of this coupon's units to be released.
pub async fn count_open_of(pool: &PgPool, coupon: CouponId) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM stock_returns
           WHERE coupon_id = $1 AND what = 'unit' AND done_at IS NULL"#,
        coupon.get(),
    )
    .fetch_one(pool)
    .await
}
