//! Dead letters, for the operator who looks for them and discards them.

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::PgPool;

use super::dead_letter::{self, Letter, LetterFilter, LetterState, Reason};
use super::moves::{self, OrderMoves};
use crate::base::limits;
use crate::kit::postgres;
use crate::sale::audit::{self, Action, Actor, Event};
use crate::sale::ids::{CouponId, DeadLetterId, OrderId, UserId};
use crate::sale::order::give_back::stock_returns::StockReturn;
use crate::sale::{Failure, repeated};

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

/// Result of discarding all dead letters of a reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardedAll {
    /// Letters that are discarded.
    pub discarded: u64,
    /// Letters that stay, because another order has the order id.
    pub order_ids_taken: u64,
    /// Letters that stay, because Postgres refuses to close them.
    pub failed: u64,
}

impl DiscardedAll {
    /// Letters that stay, by the code of the reason.
    pub fn kept(&self) -> [(&'static str, u64); 2] {
        [("order_id_taken", self.order_ids_taken), ("failed", self.failed)]
    }
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

    /// Dead letters that fit, newest first, from before the given one on.
    pub async fn list(
        &self,
        filter: &LetterFilter,
        before: Option<DeadLetterId>,
        limit: u32,
    ) -> sqlx::Result<Vec<Letter>> {
        // Each combination of parts has an index of its own, which a plan that knows no values can't choose.
        let mut tx = postgres::begin_planning(&self.pool).await?;
        let rows = sqlx::query_as!(
            Row,
            r#"SELECT id AS "id: DeadLetterId", lane, entry_id, position, payload, reason, detail,
                      coupon_id AS "coupon_id: CouponId", user_id AS "user_id: UserId",
                      order_id AS "order_id: OrderId", created_at, resolved_at
               FROM dead_letters
               WHERE ($1 AND resolved_at IS NULL OR NOT $1 AND resolved_at IS NOT NULL)
                 AND ($2::text IS NULL OR reason = $2)
                 AND ($3::bigint IS NULL OR coupon_id = $3) AND ($4::bigint IS NULL OR user_id = $4)
                 AND id < coalesce($5, 9223372036854775807)
               ORDER BY id DESC LIMIT $6"#,
            filter.state == LetterState::Open,
            filter.reason.map(|reason| reason.to_string()),
            filter.coupon.map(CouponId::get),
            filter.user.map(UserId::get),
            before.map(DeadLetterId::get),
            i64::from(limit),
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(Letter::from).collect())
    }

    /// One dead letter, open or closed.
    pub async fn get(&self, letter: DeadLetterId) -> sqlx::Result<Option<Letter>> {
        let row = sqlx::query_as!(
            Row,
            r#"SELECT id AS "id: DeadLetterId", lane, entry_id, position, payload, reason, detail,
                      coupon_id AS "coupon_id: CouponId", user_id AS "user_id: UserId",
                      order_id AS "order_id: OrderId", created_at, resolved_at
               FROM dead_letters WHERE id = $1"#,
            letter.get(),
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(Letter::from))
    }

    /// Ends the promise: a cancelled order takes the place of the dead letter, its buyer leaves Redis, and the unit
    /// comes back if it exists. An entry that couldn't be read, or that names no coupon, has none of these.
    pub async fn discard(&self, letter: DeadLetterId, by: &Actor) -> Result<Discarded, Failure> {
        let (pool, by) = (self.pool.clone(), by.clone());
        self.moves.to_the_end(async move { repeated(|| discard(&pool, letter, &by)).await }).await
    }

    /// Discards all open letters of this reason, each in a transaction of its own. One that stays holds up no other.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer; the letters before are discarded.
    pub async fn discard_all(&self, reason: Reason, by: &Actor) -> Result<DiscardedAll, Failure> {
        let mut done = DiscardedAll::default();
        let mut after = None;
        loop {
            let page =
                dead_letter::open_page(&self.pool, Some(reason), after, limits::LETTERS_AT_A_TIME)
                    .await?;
            let Some(last) = page.last().copied() else {
                return Ok(done);
            };
            after = Some(last);
            for letter in page {
                match self.discard(letter, by).await {
                    Ok(Discarded::Done) => done.discarded += 1,
                    Ok(Discarded::OrderIdTaken) => done.order_ids_taken += 1,
                    Ok(Discarded::NotFound) => {}
                    Err(failure) if failure.is_of_item() => done.failed += 1,
                    Err(failure) => return Err(failure),
                }
            }
        }
    }
}

/// A dead letter, as its row.
struct Row {
    id: DeadLetterId,
    lane: i32,
    entry_id: String,
    position: i32,
    payload: Vec<Vec<u8>>,
    reason: String,
    detail: String,
    coupon_id: Option<CouponId>,
    user_id: Option<UserId>,
    order_id: Option<OrderId>,
    created_at: DateTime<Utc>,
    resolved_at: Option<DateTime<Utc>>,
}

impl From<Row> for Letter {
    fn from(row: Row) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self {
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
        }
    }
}

async fn discard(pool: &PgPool, letter: DeadLetterId, by: &Actor) -> sqlx::Result<Discarded> {
    let mut tx = postgres::begin(pool).await?;
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
    if let (Some(coupon_id), Some(user_id), Some(order_id)) =
        (found.coupon_id, found.user_id, found.order_id)
    {
        let claim = StockReturn { order_id, coupon_id, user_id };
        if !moves::cancel_unwritten(&mut tx, claim).await? {
            tx.rollback().await?;
            return Ok(Discarded::OrderIdTaken);
        }
    }
    if found.is_new {
        let order =
            json!({"state": "closed", "order_id": found.order_id, "coupon_id": found.coupon_id});
        let event = Event::of(Action::DiscardDeadLetter, letter.get())
            .before(json!({"state": "open", "reason": found.reason}))
            .after(order);
        audit::note(&mut tx, by, event).await?;
    }
    tx.commit().await?;
    Ok(Discarded::Done)
}
