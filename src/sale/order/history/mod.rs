//! History: orders that are over, of archived sales and regular coupons. Owner of the tables `order_history`,
//! `redemption_history`, `stock_return_history` and `moved_order_counts`.
//!
//! # Model
//!
//! An order moves with all that belongs to it, in one transaction (`sale/retention/history.rs`), which also raises the
//! *retention mark* (`settings.orders_moved_to`) to its id and counts the move. From then on the order is read here: by
//! its id, in its user's list, by its redemption code. No status changes here. A gateway that names an order of the
//! history has it brought back first ([`recall`](moved::recall)), so the money takes its usual way.
//!
//! # The mark
//!
//! The order log may bring the entry of an order again that has moved, also when its month has been dropped since, and no
//! row would tell. So a claim becomes no row if its sale is archived and its id is not behind the mark (`set_aside` in
//! `sale/order/insert.rs`): it is a repeat if the history has it, else a dead letter. A writer looks at the mark under a
//! lock that the transaction of a move waits for; and it needs to look only if the sale is archived, since no order
//! of another sale moves.

// The staff's search.
pub mod search;

// Part of the history that one page of a list reads, and one look of several.
pub mod window;

// The way into the history, and back.
pub mod moved;

use sqlx::{PgConnection, PgPool};

use crate::kit::postgres;
use crate::sale::ids::{CouponId, OrderId, UserId};
use crate::sale::order::model::{Order, OrderStatus, RedemptionCode};

/// One order, of any user.
pub async fn find(pool: &PgPool, order: OrderId) -> sqlx::Result<Option<Order>> {
    sqlx::query_as!(
        Order,
        r#"SELECT id AS "order_id: OrderId", coupon_id AS "coupon_id: CouponId",
                  CASE WHEN user_id > 0 THEN user_id END AS "user_id: UserId", status AS "status: OrderStatus", pay_method,
                  pay_cents AS "pay_cents!", currency AS "currency!", pay_by,
                  claimed_at, paid_at, redeemed_at, cancelled_at, expired_at, refunding_at, refunded_at,
                  CASE WHEN status = 'cancelled' THEN cancel_reason END AS cancel_reason,
                  NULL::text AS "redemption_code: RedemptionCode"
           FROM order_history WHERE id = $1"#,
        order.get(),
    )
    .fetch_optional(pool)
    .await
}

/// The user's orders, newest first, from before the given one on, and not older than the id `first`.
pub async fn list(
    pool: &PgPool,
    user: UserId,
    (first, before): (i64, Option<OrderId>),
    limit: u32,
) -> sqlx::Result<Vec<Order>> {
    // A plan for any values locks all partitions; so below.
    let mut tx = postgres::begin_planning(pool).await?;
    sqlx::query_as!(
        Order,
        r#"SELECT id AS "order_id: OrderId", coupon_id AS "coupon_id: CouponId",
                  CASE WHEN user_id > 0 THEN user_id END AS "user_id: UserId", status AS "status: OrderStatus", pay_method,
                  pay_cents AS "pay_cents!", currency AS "currency!", pay_by,
                  claimed_at, paid_at, redeemed_at, cancelled_at, expired_at, refunding_at, refunded_at,
                  CASE WHEN status = 'cancelled' THEN cancel_reason END AS cancel_reason,
                  NULL::text AS "redemption_code: RedemptionCode"
           FROM order_history WHERE user_id = $1 AND id >= $2 AND id < coalesce($3, 9223372036854775807)
           ORDER BY id DESC LIMIT $4"#,
        user.get(),
        first,
        before.map(OrderId::get),
        i64::from(limit),
    )
    .fetch_all(&mut *tx)
    .await
}

/// The user's latest order of this coupon. Looks for it only if orders of the coupon have moved; from the newest month on,
/// [some months](window) at a time.
pub async fn last_of(
    pool: &PgPool,
    coupon: CouponId,
    user: UserId,
) -> sqlx::Result<Option<(OrderId, OrderStatus)>> {
    if !has_orders_of(pool, coupon).await? {
        return Ok(None);
    }
    let mut walk = window::Walk::begin(pool).await?;
    while let Some((mut tx, first, end)) = walk.next().await? {
        let row = sqlx::query!(
            r#"SELECT id AS "id: OrderId", status AS "status: OrderStatus" FROM order_history
               WHERE user_id = $1 AND coupon_id = $2 AND id >= $3 AND id < $4 ORDER BY id DESC LIMIT 1"#,
            user.get(),
            coupon.get(),
            first,
            end,
        );
        if let Some(row) = row.fetch_optional(&mut *tx).await? {
            return Ok(Some((row.id, row.status)));
        }
    }
    Ok(None)
}

/// The order with this redemption code; from the newest month on, [some months](window) at a time.
pub(super) async fn of_code(pool: &PgPool, code: &RedemptionCode) -> sqlx::Result<Option<OrderId>> {
    let mut walk = window::Walk::begin(pool).await?;
    while let Some((mut tx, first, end)) = walk.next().await? {
        let order = sqlx::query_scalar!(
            r#"SELECT order_id AS "order: OrderId" FROM redemption_history
               WHERE code = $1 AND order_id >= $2 AND order_id < $3"#,
            code.canonical(),
            first,
            end,
        );
        if let Some(order) = order.fetch_optional(&mut *tx).await? {
            return Ok(Some(order));
        }
    }
    Ok(None)
}

/// True if orders of this coupon have ever moved.
async fn has_orders_of(pool: &PgPool, coupon: CouponId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM moved_order_counts WHERE coupon_id = $1) AS "has!""#,
        coupon.get(),
    )
    .fetch_one(pool)
    .await
}

/// A claim's order in the history.
pub(super) struct Moved {
    pub(super) id: OrderId,
    pub(super) coupon: CouponId,
    /// None for an erased user.
    pub(super) user: Option<UserId>,
}

/// The orders among these that have moved.
pub(super) async fn among(tx: &mut PgConnection, orders: &[i64]) -> sqlx::Result<Vec<Moved>> {
    postgres::plan_for_values(&mut *tx).await?;
    sqlx::query_as!(
        Moved,
        r#"SELECT id AS "id: OrderId", coupon_id AS "coupon: CouponId",
                  CASE WHEN user_id > 0 THEN user_id END AS "user: UserId"
           FROM order_history WHERE id = ANY($1)"#,
        orders,
    )
    .fetch_all(tx)
    .await
}

/// Takes a user off all moved orders, and deletes their stock returns. Returns the ids of the orders.
pub async fn erase(tx: &mut PgConnection, user: UserId) -> sqlx::Result<Vec<i64>> {
    let orders = sqlx::query_scalar!(
        "UPDATE order_history SET user_id = -id, updated_at = now() WHERE user_id = $1 RETURNING id",
        user.get(),
    )
    .fetch_all(&mut *tx)
    .await?;
    sqlx::query!("DELETE FROM stock_return_history WHERE order_id = ANY($1)", &orders)
        .execute(tx)
        .await?;
    Ok(orders)
}
