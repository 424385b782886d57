//! Rows about units and places on their way back: written in the transaction that gives one up.

use std::collections::HashSet;

use sqlx::{PgConnection, PgPool};

use crate::coupon::model::CouponKind;
use crate::store::ids::{CouponId, OrderId, UserId};
use crate::store::postgres;

/// An order that is closed, or has been moved otherwise.
#[derive(Clone, Debug)]
pub struct StockReturn {
    /// The order.
    pub order_id: OrderId,
    /// Its coupon.
    pub coupon_id: CouponId,
    /// Its buyer.
    pub user_id: UserId,
    /// Whether it has a unit.
    pub kind: CouponKind,
}

/// Notes that the units of closed orders come back, in the transaction that closes them. Regular coupons have none.
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

/// Notes that an order is no longer unpaid, in the transaction in which it is paid. Only flash coupons have places.
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

/// The orders among these closed ones whose unit hasn't come back yet.
pub async fn open_among(pool: &PgPool, orders: &[i64]) -> sqlx::Result<HashSet<OrderId>> {
    let mut tx = postgres::begin_planning(pool).await?;
    let open = sqlx::query_scalar!(
        // By the key: for IS NULL there is another index, in which a plan from before a burst would search all open rows.
        r#"SELECT order_id AS "order_id: OrderId" FROM stock_returns
           WHERE order_id = ANY($1) AND what = 'unit' AND coalesce(done_at, 'infinity') = 'infinity'"#,
        orders,
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(open.into_iter().collect())
}

/// Number of units on their way back.
pub async fn count_open(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM stock_returns WHERE done_at IS NULL AND what = 'unit'"#
    )
    .fetch_one(pool)
    .await
}

/// Number of units of this coupon on their way back.
pub async fn count_open_of(pool: &PgPool, coupon: CouponId) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM stock_returns
           WHERE coupon_id = $1 AND what = 'unit' AND done_at IS NULL"#,
        coupon.get(),
    )
    .fetch_one(pool)
    .await
}
