//! Payments that are over: a user's rows, the rows without their user, and rows that have served their time.
//!
//! A payment that an order has taken stays with its order. One that has gone back or was closed is deleted after a time.
//! Its gateway may name it again, and nothing would tell then that it is settled: so the transaction that deletes
//! payments notes up to which orders (`settings.payments_kept_from`), and a payment of an older order that is not known
//! is held until an administrator decides. No money goes back by itself for a second time.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{PgConnection, PgPool};

use crate::kit::id;
use crate::kit::postgres::{self, Page};
use crate::sale::ids::OrderId;
use crate::sale::installation;

/// Words in place of an administrator's note about an erased user's payment.
const ERASED_NOTE: &str = "erased with its user";

/// Payments, and payments that were opened at a gateway, of these orders.
pub async fn rows(tx: &mut PgConnection, orders: &[i64]) -> sqlx::Result<(Vec<Value>, Vec<Value>)> {
    postgres::plan_for_values(&mut *tx).await?;
    let payments = sqlx::query_scalar!(
        r#"SELECT to_jsonb(payments) AS "row!" FROM payments WHERE order_id = ANY($1) ORDER BY id"#,
        orders,
    );
    let payments = payments.fetch_all(&mut *tx).await?;
    let opened = sqlx::query_scalar!(
        r#"SELECT to_jsonb(opened_payments) AS "row!" FROM opened_payments
           WHERE order_id = ANY($1) ORDER BY id"#,
        orders,
    );
    Ok((payments, opened.fetch_all(tx).await?))
}

/// Takes free words and addresses of pages off the payments of these orders. Returns the payments that had a note.
pub async fn erase(tx: &mut PgConnection, orders: &[i64]) -> sqlx::Result<Vec<i64>> {
    sqlx::query!("DELETE FROM opened_payments WHERE order_id = ANY($1)", orders)
        .execute(&mut *tx)
        .await?;
    sqlx::query_scalar!(
        "UPDATE payments SET note = $2, updated_at = now()
         WHERE order_id = ANY($1) AND note <> $2 RETURNING id",
        orders,
        ERASED_NOTE,
    )
    .fetch_all(tx)
    .await
}

/// Deletes the payments on a page that have gone back or were closed before this time. The page begins behind the
/// payment `behind`.
pub async fn forget(
    pool: &PgPool,
    behind: i64,
    before: DateTime<Utc>,
    limit: u32,
) -> sqlx::Result<Page> {
    let mut tx = postgres::begin_planning(pool).await?;
    let payments = sqlx::query!(
        r#"SELECT id, created_at < $2 AS "is_old!",
                  status IN ('refunded', 'closed') AND updated_at < $2 AND order_id < $4 AS "is_over!"
           FROM payments WHERE id > $1 ORDER BY id LIMIT $3"#,
        behind,
        before,
        i64::from(limit),
        id::first_at(before),
    )
    .fetch_all(&mut *tx)
    .await?;
    let old: Vec<_> = payments.into_iter().filter(|row| row.is_old).collect();
    let over: Vec<i64> = old.iter().filter(|row| row.is_over).map(|row| row.id).collect();
    if !over.is_empty() {
        installation::payments_kept_from(&mut tx, before).await?;
    }
    let gone = sqlx::query!("DELETE FROM payments WHERE id = ANY($1)", &over);
    let deleted = gone.execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    // Younger payments have larger ids.
    Ok(Page { last: old.last().map(|row| row.id).filter(|_| old.len() >= limit as usize), deleted })
}

/// Deletes the rows on a page about payments that were opened before this time and are asked about no more. A payer who
/// comes back all the same has the payment opened under the same key. The page begins behind the row `behind`.
pub async fn forget_opened(
    pool: &PgPool,
    behind: i64,
    before: DateTime<Utc>,
    limit: u32,
) -> sqlx::Result<Page> {
    let mut tx = postgres::begin_planning(pool).await?;
    let opened = sqlx::query!(
        r#"SELECT id, created_at < $2 AS "is_old!" FROM opened_payments WHERE id > $1 ORDER BY id LIMIT $3"#,
        behind,
        before,
        i64::from(limit),
    )
    .fetch_all(&mut *tx)
    .await?;
    let old: Vec<i64> = opened.iter().filter(|row| row.is_old).map(|row| row.id).collect();
    let gone = sqlx::query!(
        "DELETE FROM opened_payments WHERE id = ANY($1) AND closed_at < $2",
        &old,
        before,
    );
    let deleted = gone.execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    Ok(Page { last: old.last().copied().filter(|_| old.len() >= limit as usize), deleted })
}

/// Whether payments of this order may have been deleted.
pub(super) async fn may_be_forgotten(pool: &PgPool, order: OrderId) -> sqlx::Result<bool> {
    Ok(id::time_of(order.get()) < installation::payments_known_from(pool).await?)
}
