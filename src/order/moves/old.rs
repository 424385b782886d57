//! Deletes old orders and what belongs to them (`operator/retention.rs`).
//!
//! An order may be deleted once it is over and its sale is archived and removed from Redis. From then on no claim of
//! that sale becomes an order (`order/insert.rs`), so neither an older Redis nor a log that is read again can bring the
//! order back. A regular coupon has no sale, and its claims are in no log.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool};

use crate::store::postgres;

/// Keeps other processes from deleting orders and letters until the transaction ends. False if another process holds
/// the lock.
pub async fn alone(tx: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"SELECT pg_try_advisory_xact_lock(hashtextextended('old orders', 0)) AS "alone!""#
    )
    .fetch_one(tx)
    .await
}

/// Ids of orders after `behind` and before `end`, ascending.
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

/// Locks those of these orders that may be deleted because nothing about them is pending. Skips orders that are locked
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

/// Deletes these orders, which the caller has locked, with their redemptions, stock returns and dead letters.
pub async fn delete(tx: &mut PgConnection, orders: &[i64]) -> sqlx::Result<()> {
    sqlx::query!("DELETE FROM stock_returns WHERE order_id = ANY($1)", orders)
        .execute(&mut *tx)
        .await?;
    sqlx::query!("DELETE FROM redemptions WHERE order_id = ANY($1)", orders)
        .execute(&mut *tx)
        .await?;
    // A letter of another claim with the same order id stays.
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

/// Deletes closed dead letters without an order, of sales that have left Redis. Keeps a letter whose unit isn't
/// released yet. Returns how many were deleted.
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

/// Deletes stock returns done before this time, of orders with ids below `end`. An order is closed only once, so a
/// return that is done needs no row to be recognised as a repeat.
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
