//! Reads and discards dead letters for an operator. `operator/operations.rs` lists them.

use std::collections::BTreeMap;

use serde_json::json;
use sqlx::{PgConnection, PgPool};

use super::dead_letter::{self, Letter, Reason};
use super::moves::{self, OrderMoves};
use crate::store::audit::{self, Action, Actor, Event};
use crate::store::ids::{CouponId, DeadLetterId, OrderId, UserId};
use crate::store::postgres;
use crate::store::{Failure, repeated};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discarded {
    /// Discarded, by this call or before.
    Done,
    NotFound,
    /// Another order has the letter's order id, so the letter can't become a cancelled one.
    OrderIdTaken,
}

/// Number of letters by the code of what became of them.
pub type DiscardedAll = BTreeMap<&'static str, u64>;

/// Reads and discards dead letters. Clones share the pool.
#[derive(Clone)]
pub struct DeadLetters {
    pool: PgPool,
    moves: OrderMoves,
}

impl DeadLetters {
    pub fn new(pool: PgPool, moves: OrderMoves) -> Self {
        Self { pool, moves }
    }

    /// Whether this order is an open dead letter.
    pub async fn is_open(&self, order: OrderId) -> sqlx::Result<bool> {
        dead_letter::is_open(&self.pool, order).await
    }

    /// One dead letter, open or closed.
    pub async fn get(&self, letter: DeadLetterId) -> sqlx::Result<Option<Letter>> {
        let row = sqlx::query!(
            r#"SELECT id AS "id: DeadLetterId", lane, entry_id, position, payload, reason, detail,
                      coupon_id AS "coupon_id: CouponId", user_id AS "user_id: UserId",
                      order_id AS "order_id: OrderId", created_at, resolved_at
               FROM dead_letters WHERE id = $1"#,
            letter.get(),
        )
        .fetch_optional(&self.pool)
        .await?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(row.map(|row| Letter {
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
            closed_at: row.resolved_at,
        }))
    }

    /// Gives up the claim: a cancelled order takes the place of the dead letter, the buyer leaves Redis, and the unit,
    /// if the claim had one, is released. An entry that couldn't be read, or whose coupon doesn't exist, is only
    /// closed.
    pub async fn discard(&self, letter: DeadLetterId, by: &Actor) -> Result<Discarded, Failure> {
        let (pool, by) = (self.pool.clone(), by.clone());
        self.moves.to_the_end(async move { repeated(|| discard(&pool, letter, &by)).await }).await
    }

    /// Discards all open letters with this reason, each in its own transaction. A letter that can't be discarded
    /// doesn't stop the others.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer; the letters before stay discarded.
    pub async fn discard_all(&self, reason: Reason, by: &Actor) -> Result<DiscardedAll, Failure> {
        let mut done = DiscardedAll::new();
        for letter in dead_letter::open_ids(&self.pool, Some(reason)).await? {
            let code = match self.discard(letter, by).await {
                Ok(Discarded::Done) => "discarded",
                Ok(Discarded::OrderIdTaken) => "order_id_taken",
                Ok(Discarded::NotFound) => continue,
                Err(failure) if failure.is_of_item() => "failed",
                Err(failure) => return Err(failure),
            };
            *done.entry(code).or_default() += 1;
        }
        Ok(done)
    }
}

async fn discard(pool: &PgPool, letter: DeadLetterId, by: &Actor) -> sqlx::Result<Discarded> {
    let mut tx = postgres::begin(pool).await?;
    let discarded = discard_in(&mut tx, letter, by).await?;
    match discarded {
        Discarded::Done => tx.commit().await?,
        Discarded::NotFound | Discarded::OrderIdTaken => tx.rollback().await?,
    }
    Ok(discarded)
}

/// Closes a letter, and cancels its claim.
pub(crate) async fn discard_in(
    tx: &mut PgConnection,
    letter: DeadLetterId,
    by: &Actor,
) -> sqlx::Result<Discarded> {
    let found = sqlx::query!(
        r#"UPDATE dead_letters SET resolved_at = coalesce(resolved_at, now()), updated_at = now() WHERE id = $1
           RETURNING coupon_id AS "coupon_id: CouponId", user_id AS "user_id: UserId",
                     order_id AS "order_id: OrderId", reason, resolved_at = now() AS "is_new!""#,
        letter.get(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(found) = found else {
        return Ok(Discarded::NotFound);
    };
    if let (Some(coupon), Some(user), Some(order)) =
        (found.coupon_id, found.user_id, found.order_id)
        && !moves::cancel_unwritten(&mut *tx, (order, coupon, user)).await?
    {
        return Ok(Discarded::OrderIdTaken);
    }
    if found.is_new {
        let order =
            json!({"state": "closed", "order_id": found.order_id, "coupon_id": found.coupon_id});
        let event = Event::of(Action::DiscardDeadLetter, letter.get())
            .before(json!({"state": "open", "reason": found.reason}))
            .after(order);
        audit::note(tx, by, event).await?;
    }
    Ok(Discarded::Done)
}
