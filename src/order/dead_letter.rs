//! Claims of the order log that can't become an order as they are.
//!
//! A dead letter is an accepted claim that an operator has to look at. It keeps the claim, or the bytes found in its
//! place, and the buyer keeps the unit.
//!
//! Discarding a letter leaves a row: the claim becomes a cancelled order. The unit is released if the user is a buyer
//! by this order in Redis (`order/release/job.rs`).

use std::collections::HashSet;
use std::fmt::{self, Write};

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::{PgConnection, PgExecutor, PgPool};
use utoipa::ToSchema;

use crate::base::limits;
use crate::log::{EntryId, LoggedClaim, Place, Unreadable, Why};
use crate::store::audit::{self, Action, Actor, Event};
use crate::store::ids::{CouponId, DeadLetterId, Lane, OrderId, UserId, order_id};
use crate::store::postgres;

/// Why an entry became a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The entry doesn't name coupon, user and order id.
    Undecodable,
    /// Postgres refuses the values: no such flash coupon, or an impossible id.
    Invalid,
    /// The order id, or the buyer's place, belongs to another order.
    Conflict,
    /// The sale has more orders than units.
    Oversold,
    /// The log lost the entry before it was written. Redis has lost data.
    DeletedFromLog,
    /// The sale is archived: the claim's order may have been deleted.
    Archived,
}

/// A position of an entry, and why it became a dead letter.
#[derive(Debug)]
pub struct DeadLetter {
    lane: Lane,
    place: Place,
    payload: Vec<Vec<u8>>,
    claim: Option<LoggedClaim>,
    reason: Reason,
    detail: String,
}

impl DeadLetter {
    /// The letter of a claim that can't become an order; `detail` tells an operator why.
    pub fn of_claim(lane: Lane, claim: &LoggedClaim, reason: Reason, detail: &str) -> Self {
        let detail = detail.to_owned();
        let payload = claim.payload();
        Self { lane, place: claim.place, payload, claim: Some(*claim), reason, detail }
    }

    /// The letter of a position that can't be read.
    pub fn unreadable(lane: Lane, position: &Unreadable) -> Self {
        let (reason, detail) = match position.why {
            Why::Malformed(why) => (Reason::Undecodable, why.to_owned()),
            Why::Lost => (
                Reason::DeletedFromLog,
                "the entry was deleted from the log while it was pending; `flash-sale reconcile` names the buyers".to_owned(),
            ),
        };
        let Unreadable { place, payload, .. } = position.clone();
        Self { lane, place, payload, claim: None, reason, detail }
    }

    pub fn entry(&self) -> EntryId {
        self.place.entry
    }

    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The reason, in words for an operator.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

/// A dead letter, as Postgres keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Letter {
    /// Id of the dead letter.
    pub id: DeadLetterId,
    /// Lane of the log.
    pub lane: i32,
    /// The entry's id in the log.
    pub entry_id: String,
    /// Number of claims before this one in the entry.
    pub position: i32,
    /// The claim as an entry of its own, or the bytes that can't be read: name, value, name, value ... Bytes that are
    /// no UTF-8 are replaced.
    pub entry: Vec<String>,
    /// Reason of the dead letter.
    pub reason: String,
    /// The reason, in words.
    pub detail: String,
    /// The claimed coupon, if it could be read.
    pub coupon_id: Option<CouponId>,
    /// The buyer.
    pub user_id: Option<UserId>,
    /// The order id of the claim.
    pub order_id: Option<OrderId>,
    /// Time at which the entry became a dead letter.
    pub created_at: DateTime<Utc>,
    /// Time at which it was discarded, became an order, or was given up; null while it is open.
    pub closed_at: Option<DateTime<Utc>>,
}

/// Whether this letter is open, and its claim, with the revision of its entry, if the entry could be read. The letter
/// stays locked until the transaction ends, so that nobody else retries or discards it.
pub async fn hold(
    tx: &mut PgConnection,
    letter: DeadLetterId,
) -> sqlx::Result<Option<(bool, Option<LoggedClaim>)>> {
    let row = sqlx::query!(
        r#"SELECT resolved_at IS NULL AS "is_open!", payload, coupon_id AS "coupon_id: CouponId",
                  user_id AS "user_id: UserId", order_id AS "order_id: OrderId"
           FROM dead_letters WHERE id = $1 FOR UPDATE"#,
        letter.get(),
    )
    .fetch_optional(tx)
    .await?;
    Ok(row.map(|row| {
        let ids = row.coupon_id.zip(row.user_id).zip(row.order_id);
        let claim = ids.map(|((coupon, user), order)| {
            LoggedClaim::without_entry(coupon, user, order).of_letter(&row.payload)
        });
        (row.is_open, claim)
    }))
}

/// Open letters, oldest first; only those with this reason, if one is given.
pub async fn open_ids(pool: &PgPool, reason: Option<Reason>) -> sqlx::Result<Vec<DeadLetterId>> {
    sqlx::query_scalar!(
        r#"SELECT id AS "id: DeadLetterId" FROM dead_letters
           WHERE resolved_at IS NULL AND reason = coalesce($1, reason) ORDER BY id"#,
        reason.map(|reason| reason.to_string()),
    )
    .fetch_all(pool)
    .await
}

/// Closes a letter whose claim has become an order.
pub async fn became_order(
    tx: &mut PgConnection,
    letter: DeadLetterId,
    by: &Actor,
) -> sqlx::Result<()> {
    let letter_was = sqlx::query!(
        r#"UPDATE dead_letters SET detail = detail || '; it became an order when it was tried again',
                  resolved_at = now(), updated_at = now()
           WHERE id = $1 AND resolved_at IS NULL
           RETURNING order_id AS "order_id: OrderId", reason"#,
        letter.get(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    if let Some(was) = letter_was {
        let event = Event::of(Action::RetryDeadLetter, letter.get())
            .before(json!({ "state": "open", "reason": was.reason }))
            .after(json!({ "state": "closed", "order_id": was.order_id }));
        audit::note(&mut *tx, by, event).await?;
    }
    Ok(())
}

pub async fn open_letters_of(
    tx: &mut PgConnection,
    coupon: CouponId,
) -> sqlx::Result<Vec<DeadLetterId>> {
    sqlx::query_scalar!(
        r#"SELECT id AS "id: DeadLetterId" FROM dead_letters
           WHERE coupon_id = $1 AND resolved_at IS NULL ORDER BY id"#,
        coupon.get(),
    )
    .fetch_all(tx)
    .await
}

/// Inserts dead letters, all or none. Returns the number of new ones. A letter is a repeat if a row has the same entry
/// and payload, or if an open letter has the same claim. The payload counts because a Redis that went back in time may
/// give an entry id a second time.
pub async fn insert_all(
    executor: impl PgExecutor<'_>,
    letters: &[DeadLetter],
) -> sqlx::Result<usize> {
    if letters.is_empty() {
        return Ok(0);
    }
    fn column<'a, T>(letters: &'a [DeadLetter], of: impl Fn(&'a DeadLetter) -> T) -> Vec<T> {
        letters.iter().map(of).collect()
    }
    let coupons = column(letters, |letter| letter.claim.map(|claim| claim.coupon_id.get()));
    let users = column(letters, |letter| letter.claim.map(|claim| claim.user_id.get()));
    let orders = column(letters, |letter| letter.claim.map(|claim| claim.order_id.get()));
    let done = sqlx::query!(
        // Sorted, so that two workers can't deadlock.
        "INSERT INTO dead_letters
             (lane, epoch, entry_id, position, payload, reason, detail, coupon_id, user_id, order_id)
         SELECT lane, epoch, entry_id, position, payload::bytea[], reason, detail, coupon_id, user_id, order_id
         FROM UNNEST($1::integer[], $2::bigint[], $3::text[], $4::integer[], $5::text[], $6::text[], $7::text[],
                     $8::bigint[], $9::bigint[], $10::bigint[])
              AS letter (lane, epoch, entry_id, position, payload, reason, detail, coupon_id, user_id, order_id)
         WHERE NOT EXISTS (SELECT FROM dead_letters AS open WHERE open.order_id = letter.order_id
                           AND open.coupon_id = letter.coupon_id AND open.user_id = letter.user_id
                           AND open.resolved_at IS NULL)
         ORDER BY lane, epoch, entry_id, position
         ON CONFLICT ON CONSTRAINT dead_letters_entry DO NOTHING",
        &column(letters, |letter| letter.lane.get()),
        &column(letters, |letter| letter.place.epoch),
        &column(letters, |letter| letter.place.entry.to_string()),
        &column(letters, |letter| i32::try_from(letter.place.position).unwrap_or(i32::MAX)),
        &column(letters, |letter| array_literal(&letter.payload)),
        &column(letters, |letter| letter.reason.to_string()),
        &column(letters, |letter| letter.detail.clone()),
        &coupons as _,
        &users as _,
        &orders as _,
    )
    .execute(executor)
    .await?;
    Ok(usize::try_from(done.rows_affected()).unwrap_or(usize::MAX))
}

/// An array of byte strings as Postgres writes it. UNNEST would flatten an array of arrays.
fn array_literal(payload: &[Vec<u8>]) -> String {
    let mut literal = String::from("{");
    for (n, bytes) in payload.iter().enumerate() {
        literal.push_str(if n == 0 { "\"\\\\x" } else { ",\"\\\\x" });
        for byte in bytes {
            let _ = write!(literal, "{byte:02x}");
        }
        literal.push('"');
    }
    literal.push('}');
    literal
}

pub async fn is_open(pool: &PgPool, order: OrderId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM dead_letters WHERE order_id = $1 AND resolved_at IS NULL) AS "open!""#,
        order.get(),
    )
    .fetch_one(pool)
    .await
}

/// Which of these orders have a dead letter, open or closed.
pub async fn among(pool: &PgPool, orders: &[i64]) -> sqlx::Result<HashSet<OrderId>> {
    // By the order id alone: the index needs no more.
    let letters = sqlx::query_scalar!(
        r#"SELECT order_id AS "order_id!: OrderId" FROM dead_letters WHERE order_id = ANY($1)"#,
        orders,
    )
    .fetch_all(pool)
    .await?;
    Ok(letters.into_iter().collect())
}

/// Which of these claims are open dead letters.
pub async fn open_among(
    tx: &mut PgConnection,
    claims: &[LoggedClaim],
) -> sqlx::Result<HashSet<(CouponId, UserId, OrderId)>> {
    let orders: Vec<i64> = claims.iter().map(|claim| claim.order_id.get()).collect();
    let letters = sqlx::query!(
        r#"SELECT coupon_id AS "coupon!: CouponId", user_id AS "user!: UserId", order_id AS "order!: OrderId"
           FROM dead_letters WHERE order_id = ANY($1) AND resolved_at IS NULL"#,
        &orders,
    )
    .fetch_all(tx)
    .await?;
    Ok(letters.into_iter().map(|letter| (letter.coupon, letter.user, letter.order)).collect())
}

pub async fn count_open(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM dead_letters WHERE resolved_at IS NULL"#
    )
    .fetch_one(pool)
    .await
}

/// Order ids of this coupon's open dead letters, except those that have become orders.
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

/// Number of dead letters of this coupon, open and closed, whose order has no row.
pub async fn count_without_order(pool: &PgPool, coupon: CouponId) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "letters!" FROM dead_letters
           WHERE coupon_id = $1 AND NOT EXISTS (SELECT FROM orders WHERE orders.id = dead_letters.order_id)"#,
        coupon.get(),
    )
    .fetch_one(pool)
    .await
}

/// The open dead letters of this coupon whose user has no live order of it, by order id.
pub async fn without_live_order(
    snapshot: &mut PgConnection,
    coupon: CouponId,
) -> sqlx::Result<Vec<(UserId, OrderId)>> {
    postgres::plan_for_values(&mut *snapshot).await?;
    let rows = sqlx::query!(
        r#"SELECT user_id AS "user_id!: UserId", order_id AS "order_id!: OrderId" FROM dead_letters
           WHERE coupon_id = $1 AND resolved_at IS NULL
             AND NOT EXISTS (SELECT FROM orders WHERE orders.coupon_id = dead_letters.coupon_id
                             AND orders.user_id = dead_letters.user_id AND orders.kind = 'flash'
                             AND is_live(orders.status))
             -- The claim became an order after all, which may be closed by now.
             AND NOT EXISTS (SELECT FROM orders WHERE orders.id = dead_letters.order_id
                             AND orders.coupon_id = dead_letters.coupon_id
                             AND orders.user_id = dead_letters.user_id)
           ORDER BY order_id"#,
        coupon.get(),
    )
    .fetch_all(snapshot)
    .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.order_id)).collect())
}

/// The order id of the user's newest open dead letter of this coupon.
pub async fn newest_open_of(
    pool: &PgPool,
    coupon: CouponId,
    user: UserId,
) -> sqlx::Result<Option<OrderId>> {
    sqlx::query_scalar!(
        r#"SELECT order_id AS "order_id!: OrderId" FROM dead_letters
           WHERE coupon_id = $1 AND user_id = $2 AND resolved_at IS NULL AND order_id IS NOT NULL
           ORDER BY order_id DESC LIMIT 1"#,
        coupon.get(),
        user.get(),
    )
    .fetch_optional(pool)
    .await
}

/// Number of dead letters of a lane, open and closed, written since a time on Redis's clock. The clocks may differ by
/// [`limits::CLOCKS_MARGIN`].
pub async fn count_since(pool: &PgPool, lane: Lane, since: DateTime<Utc>) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "letters!" FROM dead_letters WHERE lane = $1 AND created_at >= $2"#,
        lane.get(),
        since - TimeDelta::from_std(limits::CLOCKS_MARGIN).unwrap_or_default(),
    )
    .fetch_one(pool)
    .await
}

/// The highest order id among this lane's dead letters whose time is in `after..before`.
pub async fn highest_between(
    pool: &PgPool,
    lane: Lane,
    (after, before): (DateTime<Utc>, DateTime<Utc>),
) -> sqlx::Result<Option<OrderId>> {
    sqlx::query_scalar!(
        r#"SELECT max(order_id) AS "id: OrderId" FROM dead_letters
           WHERE order_id >= $1 AND order_id < $2 AND lane = $3"#,
        order_id::first_at(after),
        order_id::first_at(before),
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
            Self::Archived => "archived",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_strings_are_written_as_postgres_reads_them() {
        let payload = [b"a\"".to_vec(), vec![0, 255, b'\\'], Vec::new()];
        assert_eq!(array_literal(&payload), r#"{"\\x6122","\\x00ff5c","\\x"}"#);
        assert_eq!(array_literal(&[]), "{}");
    }

    #[test]
    fn a_letter_keeps_its_claim_or_what_stands_in_its_place() {
        let entry = EntryId { ms: 5, sequence: 2 };
        let lane = Lane::numbered(3);
        let place = Place { epoch: 4, entry, position: 6 };
        let payload = vec![b"junk".to_vec()];
        let malformed =
            Unreadable { place, payload: payload.clone(), why: Why::Malformed("no id") };
        let letter = DeadLetter::unreadable(lane, &malformed);
        assert_eq!((letter.reason(), letter.detail()), (Reason::Undecodable, "no id"));
        assert_eq!((letter.entry(), letter.place, letter.payload), (entry, place, payload));
        assert_eq!((letter.lane, letter.claim), (lane, None));
        let lost = DeadLetter::unreadable(lane, &crate::log::Entry::lost(entry));
        assert_eq!((lost.reason(), lost.payload.is_empty()), (Reason::DeletedFromLog, true));
        let (user, order) = (UserId::new(42).expect("an id"), OrderId::new(77).expect("an id"));
        let claim = LoggedClaim::without_entry(CouponId::compose(1, 1), user, order);
        let letter = DeadLetter::of_claim(lane, &claim, Reason::Oversold, "no unit");
        assert_eq!((letter.claim, letter.entry()), (Some(claim), claim.place.entry));
        assert_eq!((letter.reason(), letter.detail()), (Reason::Oversold, "no unit"));
        assert_eq!(letter.payload, claim.payload());
    }
}
