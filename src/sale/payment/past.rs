//! Payments that are over: a user's rows, the rows without their user, rows that have served their time, and the way of
//! payments into the history with their orders, and back. Owner of the table `payment_history`.
//!
//! A payment that an order has taken goes where its order goes. One that has gone back or was closed is deleted after a time.
//! Its gateway may name it again, and nothing would tell then that it is settled: so the transaction that deletes
//! payments notes up to which orders (`settings.payments_kept_from`), and a payment of an older order that is not known
//! is held until an administrator decides. No money goes back by itself for a second time.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{PgConnection, PgPool};

use super::gateway::Gateway;
use super::rows;
use crate::kit::id;
use crate::kit::postgres::{self, Page};
use crate::sale::audit;
use crate::sale::ids::OrderId;
use crate::sale::installation;
use crate::sale::order::history::{moved, window};

/// Payments, and payments that were opened at a gateway, of these orders.
pub async fn rows(tx: &mut PgConnection, orders: &[i64]) -> sqlx::Result<(Vec<Value>, Vec<Value>)> {
    postgres::plan_for_values(&mut *tx).await?;
    let payments = sqlx::query_scalar!(
        r#"SELECT to_jsonb(payments) AS "row!" FROM every_payment AS payments WHERE order_id = ANY($1) ORDER BY id"#,
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
    let noted = sqlx::query_scalar!(
        "UPDATE payments SET note = $2, updated_at = now()
         WHERE order_id = ANY($1) AND note <> $2 RETURNING id",
        orders,
        audit::ERASED_NOTE,
    );
    let noted = noted.fetch_all(&mut *tx).await?;
    let moved = sqlx::query_scalar!(
        "UPDATE payment_history SET note = $2, updated_at = now()
         WHERE order_id = ANY($1) AND note <> $2 RETURNING id",
        orders,
        audit::ERASED_NOTE,
    );
    Ok([noted, moved.fetch_all(tx).await?].concat())
}

/// Moves the settled payments of these orders into the history. One that goes back or is held has come after the look at
/// these orders: it stays, and takes its way without them.
pub async fn leave(tx: &mut PgConnection, orders: &[i64]) -> sqlx::Result<()> {
    sqlx::query!(
        "WITH gone AS (DELETE FROM payments WHERE order_id = ANY($1) AND status IN ('accepted', 'refunded', 'closed')
                       RETURNING *)
         INSERT INTO payment_history SELECT * FROM gone",
        orders,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Brings an order back whose payment its gateway names, or one of whose payments it names, with all that belongs to it.
/// A payment that is not known here is looked for in each month of the history. True if the payment is known.
pub(super) async fn recall(
    pool: &PgPool,
    order: Option<OrderId>,
    name: (Gateway, &str),
) -> sqlx::Result<bool> {
    let is_here = rows::is_known(pool, name).await?;
    let named = if is_here { None } else { moved_order(pool, name).await? };
    for order in named.into_iter().chain(order) {
        recall_order(pool, order).await?;
    }
    Ok(is_here || named.is_some())
}

/// The order in the history whose payment its gateway calls by this id.
async fn moved_order(
    pool: &PgPool,
    (gateway, payment_id): (Gateway, &str),
) -> sqlx::Result<Option<OrderId>> {
    let mut walk = window::Walk::begin(pool).await?;
    while let Some((mut tx, first, end)) = walk.next().await? {
        let order = sqlx::query_scalar!(
            r#"SELECT order_id AS "order: OrderId" FROM payment_history
               WHERE gateway_payment_id = $2 AND gateway = $1 AND order_id >= $3 AND order_id < $4"#,
            gateway.as_str(),
            payment_id,
            first,
            end,
        );
        if let Some(order) = order.fetch_optional(&mut *tx).await? {
            return Ok(Some(order));
        }
    }
    Ok(None)
}

async fn recall_order(pool: &PgPool, order: OrderId) -> sqlx::Result<()> {
    // Hardly ever, and nothing is locked for it.
    if !moved::has(pool, order).await? {
        return Ok(());
    }
    let mut tx = postgres::begin(pool).await?;
    if moved::recall(&mut tx, order).await? {
        tracing::info!(%order, "a gateway names an order of the history, which is brought back");
    }
    sqlx::query!(
        "WITH back AS (DELETE FROM payment_history WHERE order_id = $1 RETURNING *)
         INSERT INTO payments OVERRIDING SYSTEM VALUE SELECT * FROM back",
        order.get(),
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await
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

/// Deletes the rows on a page about payments that were opened before this time and are asked about no more: they are
/// closed, or no pass has looked since, because the gateway's URL has been taken away. One that is postponed stays: an
/// operator has to ask about its money. A payer who comes back all the same has the payment opened under the same key. The
/// page begins behind the row `behind`.
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
        "DELETE FROM opened_payments
         WHERE id = ANY($1) AND coalesce(closed_at, next_look_at) < $2
           AND (closed_at IS NOT NULL
                OR NOT EXISTS (SELECT FROM postponed WHERE pass = 'openings' AND item = order_id))",
        &old,
        before,
    );
    let deleted = gone.execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    Ok(Page::of(&old, limit, deleted))
}

/// Whether payments of this order may have been deleted.
pub(super) async fn may_be_forgotten(pool: &PgPool, order: OrderId) -> sqlx::Result<bool> {
    Ok(id::time_of(order.get()) < installation::payments_known_from(pool).await?)
}
