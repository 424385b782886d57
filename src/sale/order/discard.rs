//! Open dead letters, for the operator who discards them.

use serde_json::json;
use sqlx::PgPool;

use super::dead_letter::{self, OpenLetter};
use super::moves::{self, OrderMoves};
use crate::sale::Failure;
use crate::sale::audit::{self, Action, Actor, Event};
use crate::sale::ids::{CouponId, DeadLetterId, OrderId, UserId};
use crate::sale::order::give_back::stock_returns::StockReturn;

/// Outcome of discarding a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discarded {
    /// Discarded, by this call or before.
    Done,
    /// There is no such dead letter.
    NotFound,
    /// Another order has the letter's order id, so the letter can't become a cancelled one.
    OrderIdTaken,
}

/// Lists and discards dead letters. Clones share the pool.
#[derive(Clone)]
pub struct DeadLetters {
    pool: PgPool,
    moves: OrderMoves,
}

impl DeadLetters {
    /// Dead letters in this database.
    pub fn new(pool: PgPool, moves: OrderMoves) -> Self {
        Self { pool, moves }
    }

    /// Whether this order is an open dead letter.
    pub async fn is_open(&self, order: OrderId) -> sqlx::Result<bool> {
        dead_letter::is_open(&self.pool, order).await
    }

    /// Open dead letters, newest first, from before the given one on.
    pub async fn list(
        &self,
        before: Option<DeadLetterId>,
        limit: u32,
    ) -> sqlx::Result<Vec<OpenLetter>> {
        let rows = sqlx::query!(
            r#"SELECT id AS "id: DeadLetterId", lane, entry_id, position, payload, reason, detail,
                      coupon_id AS "coupon_id: CouponId", user_id AS "user_id: UserId",
                      order_id AS "order_id: OrderId", created_at
               FROM dead_letters
               WHERE resolved_at IS NULL AND id < coalesce($1, 9223372036854775807)
               ORDER BY id DESC LIMIT $2"#,
            before.map(DeadLetterId::get),
            i64::from(limit),
        )
        .fetch_all(&self.pool)
        .await?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let letters = rows.into_iter().map(|row| OpenLetter {
            id: row.id,
            lane: row.lane,
            entry_id: row.entry_id,
            position: row.position,
            entry: row.payload.into_iter().map(text).collect(),
            reason: row.reason,
            detail: row.detail,
            coupon_id: row.coupon_id,
            user_id: row.user_id,
            order_id: row.order_id,
            created_at: row.created_at,
        });
        Ok(letters.collect())
    }

    /// Ends the promise: a cancelled order takes the place of the dead letter, its buyer leaves Redis, and the unit
    /// comes back if it exists. An entry that couldn't be read, or that names no coupon, has none of these.
    pub async fn discard(&self, letter: DeadLetterId, by: &Actor) -> Result<Discarded, Failure> {
        let (pool, by) = (self.pool.clone(), by.clone());
        self.moves.to_the_end(async move { discard(&pool, letter, &by).await }).await
    }
}

async fn discard(pool: &PgPool, letter: DeadLetterId, by: &Actor) -> sqlx::Result<Discarded> {
    let mut tx = pool.begin().await?;
    let found = sqlx::query!(
        r#"UPDATE dead_letters SET resolved_at = coalesce(resolved_at, now()), updated_at = now() WHERE id = $1
           RETURNING coupon_id AS "coupon_id: CouponId", user_id AS "user_id: UserId",
                     order_id AS "order_id: OrderId", resolved_at = now() AS "is_new!",
                     to_timestamp(split_part(entry_id, '-', 1)::bigint / 1000.0) AS "claimed_at!""#,
        letter.get(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(found) = found else {
        return Ok(Discarded::NotFound);
    };
    if let (Some(coupon_id), Some(user_id), Some(order_id)) =
        (found.coupon_id, found.user_id, found.order_id)
    {
        let claim = StockReturn { order_id, coupon_id, user_id };
        if !moves::cancel_unwritten(&mut tx, claim, found.claimed_at).await? {
            tx.rollback().await?;
            return Ok(Discarded::OrderIdTaken);
        }
    }
    if found.is_new {
        let order = json!({"order_id": found.order_id, "coupon_id": found.coupon_id});
        let event = Event::of(Action::DiscardDeadLetter, letter.get()).after(order);
        audit::note(&mut tx, by, event).await?;
    }
    tx.commit().await?;
    Ok(Discarded::Done)
}
