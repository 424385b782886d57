//! Entries of the order log that can't become an order as they are. Owner of the table `dead_letters`.
//!
//! A dead letter is a promise that an operator has to look at, so it keeps the whole entry, byte for
//! byte, and its buyer keeps the unit.

use std::collections::HashSet;
use std::fmt;

use sqlx::{PgExecutor, PgPool};

use super::ids::{CouponId, Lane, OrderId};
use super::order_log::LogEntry;

/// Why an entry became a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It doesn't say who claimed what under which order id.
    Undecodable,
    /// Postgres refuses the values: no such flash coupon, an impossible id.
    Invalid,
    /// Its order id, or its buyer's place, belongs to another order.
    Conflict,
    /// More orders than there is stock.
    Oversold,
    /// The log lost it before it was written. Redis has lost data.
    DeletedFromLog,
}

/// An entry and why it is put aside.
#[derive(Debug)]
pub struct DeadLetter<'a> {
    /// Lane of the log.
    pub lane: Lane,
    /// The entry as it stood there.
    pub entry: &'a LogEntry,
    /// Why.
    pub reason: Reason,
    /// The same in the words of whoever found it.
    pub detail: String,
}

/// Puts an entry aside. A repeat changes nothing, and says so: false.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub async fn insert(executor: impl PgExecutor<'_>, letter: &DeadLetter<'_>) -> sqlx::Result<bool> {
    let claim = letter.entry.claim.as_ref().ok();
    let done = sqlx::query!(
        "INSERT INTO dead_letters
             (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT ON CONSTRAINT dead_letters_entry DO NOTHING",
        letter.lane.get(),
        letter.entry.id,
        &letter.entry.payload,
        letter.reason.to_string(),
        letter.detail,
        claim.map(|claim| claim.coupon_id.get()),
        claim.map(|claim| claim.user_id.get()),
        claim.map(|claim| claim.order_id.get()),
    )
    .execute(executor)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Whether this order is an open dead letter.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub async fn is_open(pool: &PgPool, order: OrderId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM dead_letters WHERE order_id = $1 AND resolved_at IS NULL) AS "open!""#,
        order.get(),
    )
    .fetch_one(pool)
    .await
}

/// How many are open.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub async fn count_open(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM dead_letters WHERE resolved_at IS NULL"#
    )
    .fetch_one(pool)
    .await
}

/// The orders that are open dead letters of this coupon, and didn't become rows after all.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub async fn open_of_coupon(pool: &PgPool, coupon: CouponId) -> sqlx::Result<HashSet<OrderId>> {
    let orders = sqlx::query_scalar!(
        r#"SELECT order_id AS "order_id!: OrderId" FROM dead_letters
           WHERE coupon_id = $1 AND resolved_at IS NULL
             AND NOT EXISTS (SELECT FROM orders WHERE orders.id = dead_letters.order_id
                             AND orders.coupon_id = dead_letters.coupon_id
                             AND orders.user_id = dead_letters.user_id)"#,
        coupon.get(),
    )
    .fetch_all(pool)
    .await?;
    Ok(orders.into_iter().collect())
}

/// Log entries of a lane that ended as dead letters and not as orders after all.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub async fn count_of_lane(pool: &PgPool, lane: Lane) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM dead_letters
           WHERE lane = $1
             AND NOT EXISTS (SELECT FROM orders WHERE orders.id = dead_letters.order_id
                             AND orders.coupon_id = dead_letters.coupon_id
                             AND orders.user_id = dead_letters.user_id)"#,
        lane.get(),
    )
    .fetch_one(pool)
    .await
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Undecodable => "undecodable",
            Self::Invalid => "invalid",
            Self::Conflict => "conflict",
            Self::Oversold => "oversold",
            Self::DeletedFromLog => "deleted_from_log",
        })
    }
}
