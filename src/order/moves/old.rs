//! Old orders, and what belongs to them, are deleted (`operator/retention.rs`).
//!
//! An order may go once it is over and its sale is archived and gone from Redis: from then on no claim of that sale becomes
//! an order (`order/insert.rs`), so neither an older Redis nor a log that is read again revives it. A regular coupon
//! has no sale, and its claims are in no log.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool};

use crate::store::postgres;

/// Keeps other processes from deleting orders and letters until the end of the transaction. False if one of them does now.
pub async fn alone(tx: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"SELECT pg_try_advisory_xact_lock(hashtextextended('old orders', 0)) AS "alone!""#
    )
    .fetch_one(tx)
    .await
}

/// The orders behind `behind` and before `end`, in the order of their ids.
pub async fn page(
    tx: &mut PgConnection,
    (behind, end): (i64, i64),
    limit: u32,
) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        "SELECT id FROM orders WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3",
        behind,
        end,
        i64::from(limit),
    )
    .fetch_all(tx)
    .await
}

/// Locks the orders among these that may be deleted, with nothing of them under way. Leaves out orders that are locked
/// elsewhere.
pub async fn lock(
    tx: &mut PgConnection,
    orders: &[i64],
    before: DateTime<Utc>,
) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        "SELECT id FROM orders
         WHERE id = ANY($1) AND status IN ('redeemed', 'cancelled', 'expired', 'refunded') AND updated_at < $2
           AND (kind = 'regular' OR EXISTS (SELECT FROM flash_sales
                                            WHERE flash_sales.coupon_id = orders.coupon_id AND removed_at IS NOT NULL))
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

/// Deletes these orders, which are locked, with their redemptions, stock returns and dead letters.
pub async fn delete(tx: &mut PgConnection, orders: &[i64]) -> sqlx::Result<()> {
    sqlx::query!("DELETE FROM stock_returns WHERE order_id = ANY($1)", orders)
        .execute(&mut *tx)
        .await?;
    sqlx::query!("DELETE FROM redemptions WHERE order_id = ANY($1)", orders)
        .execute(&mut *tx)
        .await?;
    // Not the letter of another claim with the order's id.
    sqlx::query!(
        "DELETE FROM dead_letters USING orders
         WHERE orders.id = ANY($1) AND dead_letters.order_id = orders.id
           AND dead_letters.coupon_id = orders.coupon_id AND dead_letters.user_id = orders.user_id",
        orders,
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!("DELETE FROM orders WHERE id = ANY($1)", orders).execute(tx).await?;
    Ok(())
}

/// Deletes closed dead letters of claims that are no orders, of sales whose orders may be deleted.
/// A letter whose unit is on its way back stays. Returns their number.
pub async fn delete_letters(
    tx: &mut PgConnection,
    before: DateTime<Utc>,
    limit: u32,
) -> sqlx::Result<u64> {
    let gone = sqlx::query!(
        "DELETE FROM dead_letters WHERE id IN (
               SELECT letter.id FROM dead_letters AS letter JOIN flash_sales USING (coupon_id)
               WHERE resolved_at < $1 AND removed_at IS NOT NULL
                 AND NOT EXISTS (SELECT FROM orders WHERE orders.id = letter.order_id)
                 AND NOT EXISTS (SELECT FROM stock_returns
                                 WHERE stock_returns.order_id = letter.order_id AND done_at IS NULL)
               ORDER BY letter.id LIMIT $2)",
        before,
        i64::from(limit),
    );
    Ok(gone.execute(tx).await?.rows_affected())
}

/// Deletes stock returns that were done before this time, of orders before the order `end`. An order is closed once, so a
/// later repeat of its return needs no row.
pub async fn delete_returns(
    pool: &PgPool,
    end: i64,
    before: DateTime<Utc>,
    limit: u32,
) -> sqlx::Result<u64> {
    let mut tx = postgres::begin_planning(pool).await?;
    let gone = sqlx::query!(
        "DELETE FROM stock_returns WHERE (order_id, what) IN (
             SELECT order_id, what FROM stock_returns WHERE order_id < $1 AND done_at < $2
             ORDER BY order_id LIMIT $3 FOR UPDATE SKIP LOCKED)",
        end,
        before,
        i64::from(limit),
    );
    let deleted = gone.execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    Ok(deleted)
}
