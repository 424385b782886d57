//! The way of orders into the history, and back.
//!
//! Payments move with their order, in the same transaction (`sale/payment/past.rs`).

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool};

use crate::sale::ids::OrderId;

/// A page of a walk through the orders in the order of their ids.
#[derive(Debug)]
pub struct Looked {
    /// Orders that are over since before the given time, by themselves.
    pub over: Vec<i64>,
    /// Id behind which the next page begins; `None` at the end.
    pub last: Option<i64>,
}

/// Looks at a page of orders. The page begins behind the order `behind`, and ends before the order `end`. Postponed orders
/// are left out.
pub async fn look(
    tx: &mut PgConnection,
    (behind, end): (i64, i64),
    before: DateTime<Utc>,
    limit: u32,
) -> sqlx::Result<Looked> {
    let page = sqlx::query!(
        r#"SELECT id, status IN ('redeemed', 'cancelled', 'expired', 'refunded') AND updated_at < $3
                      AND NOT EXISTS (SELECT FROM postponed WHERE pass = 'history' AND item = orders.id) AS "is_over!"
           FROM orders WHERE id > $1 AND id < $2 ORDER BY id LIMIT $4"#,
        behind,
        end,
        before,
        i64::from(limit),
    )
    .fetch_all(tx)
    .await?;
    Ok(Looked {
        last: page.last().map(|row| row.id).filter(|_| page.len() >= limit as usize),
        over: page.into_iter().filter(|row| row.is_over).map(|row| row.id).collect(),
    })
}

/// Locks the orders among these that may move: over since before this time, of a sale that has left Redis or of a regular
/// coupon, with nothing under way. In the order of their ids; orders that are locked elsewhere are left out.
///
/// A payment that comes later than this look stays where it is (`sale/payment/past.rs`).
pub async fn lock_those_over(
    tx: &mut PgConnection,
    orders: &[i64],
    before: DateTime<Utc>,
) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        "SELECT id FROM orders
         WHERE id = ANY($1) AND status IN ('redeemed', 'cancelled', 'expired', 'refunded') AND updated_at < $2
           AND (kind = 'regular' OR EXISTS (SELECT FROM flash_sales WHERE flash_sales.coupon_id = orders.coupon_id
                                              AND archived_at IS NOT NULL AND removed_at IS NOT NULL))
           AND NOT EXISTS (SELECT FROM payments WHERE payments.order_id = orders.id
                             AND (payments.status IN ('refunding', 'held') OR payments.updated_at >= $2))
           AND NOT EXISTS (SELECT FROM opened_payments WHERE opened_payments.order_id = orders.id AND closed_at IS NULL)
           AND NOT EXISTS (SELECT FROM stock_returns WHERE stock_returns.order_id = orders.id AND done_at IS NULL)
           AND NOT EXISTS (SELECT FROM dead_letters WHERE dead_letters.order_id = orders.id AND resolved_at IS NULL)
         ORDER BY id FOR UPDATE OF orders SKIP LOCKED",
        orders,
        before,
    )
    .fetch_all(tx)
    .await
}

/// Gives these orders the price that they had, where a row of an older version has none: it may follow from payments, which
/// are about to move.
pub async fn fix_prices(tx: &mut PgConnection, orders: &[i64]) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE orders
         SET pay_cents = coalesce(pay_cents, older_order_price(id, coupon_id, claimed_at)),
             currency = coalesce(currency, (SELECT currency FROM coupons WHERE id = coupon_id), 'CNY')
         WHERE id = ANY($1) AND (pay_cents IS NULL OR currency IS NULL)",
        orders,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Moves these orders, which are locked, with their redemptions and stock returns, and counts them.
pub async fn leave(tx: &mut PgConnection, orders: &[i64]) -> sqlx::Result<()> {
    sqlx::query!(
        "WITH gone AS (DELETE FROM stock_returns WHERE order_id = ANY($1) RETURNING *)
         INSERT INTO stock_return_history SELECT * FROM gone",
        orders,
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!(
        "WITH gone AS (DELETE FROM redemptions WHERE order_id = ANY($1) RETURNING *)
         INSERT INTO redemption_history SELECT * FROM gone",
        orders,
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!(
        "WITH gone AS (DELETE FROM orders WHERE id = ANY($1) RETURNING *),
              kept AS (INSERT INTO order_history SELECT * FROM gone)
         INSERT INTO moved_order_counts AS moved (coupon_id, status, orders)
         SELECT coupon_id, status, count(*) FROM gone GROUP BY coupon_id, status ORDER BY coupon_id, status
         ON CONFLICT ON CONSTRAINT moved_order_counts_once DO UPDATE SET orders = moved.orders + excluded.orders",
        orders,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// True if the history has this order.
pub async fn has(pool: &PgPool, order: OrderId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM order_history WHERE id = $1) AS "there!""#,
        order.get(),
    )
    .fetch_one(pool)
    .await
}

/// Brings an order back, with its redemption and stock returns. It moves again when it has been over for as long once more.
/// False if the history doesn't have it.
pub async fn recall(tx: &mut PgConnection, order: OrderId) -> sqlx::Result<bool> {
    let back = sqlx::query!(
        "WITH back AS (DELETE FROM order_history WHERE id = $1 RETURNING *),
              uncounted AS (
                  UPDATE moved_order_counts AS moved SET orders = orders - 1 FROM back
                  WHERE moved.coupon_id = back.coupon_id AND moved.status = back.status)
         INSERT INTO orders SELECT * FROM back",
        order.get(),
    )
    .execute(&mut *tx)
    .await?;
    if back.rows_affected() == 0 {
        return Ok(false);
    }
    sqlx::query!("UPDATE orders SET updated_at = now() WHERE id = $1", order.get())
        .execute(&mut *tx)
        .await?;
    sqlx::query!(
        "WITH back AS (DELETE FROM redemption_history WHERE order_id = $1 RETURNING *)
         INSERT INTO redemptions SELECT * FROM back",
        order.get(),
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!(
        "WITH back AS (DELETE FROM stock_return_history WHERE order_id = $1 RETURNING *)
         INSERT INTO stock_returns SELECT * FROM back",
        order.get(),
    )
    .execute(tx)
    .await?;
    Ok(true)
}
