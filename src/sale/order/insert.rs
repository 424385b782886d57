//! Rows of claims: inserted once, in id order, and found again.

use std::collections::{BTreeMap, HashSet};

use chrono::{DateTime, Utc};
use sqlx::{Postgres, Transaction};

use super::dead_letter::{self, DeadLetter, Reason};
use super::terms::{NoPrices, Terms};
use crate::base::limits;
use crate::kit::postgres;
use crate::sale::coupon::prices::Price;
use crate::sale::coupon::stock;
use crate::sale::ids::{CouponId, Lane, OrderId, UserId};
use crate::sale::log::LoggedClaim;

/// Detail of a claim whose place another order has taken.
pub(super) const CONFLICT: &str = "its order id, or its buyer's place, belongs to another order";

/// Detail of a claim whose sale is archived.
const ARCHIVED: &str = "its sale is archived, so it may have been an order that was deleted since";

/// Detail of a claim whose order id would move all later ones.
const AHEAD: &str = "its order id carries a time more than a day ahead of Postgres's clock: set the clock of Redis, and have the lane recovered";

/// The price of an order that is paid as it is written.
const FREE: i64 = 0;

/// Result of a batch of claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// New rows.
    pub inserted: usize,
    /// Claims that were rows or dead letters already.
    pub repeated: usize,
    /// Claims that became dead letters because they contradict a row.
    pub conflicts: usize,
    /// Claims that became dead letters because their sale has no unit left.
    pub oversold: usize,
    /// Claims that became dead letters because their sale is archived.
    pub archived: usize,
    /// Claims that became dead letters because their order ids carry a time too far ahead.
    pub ahead: usize,
}

/// Reason why a batch wasn't written. No part of it was.
#[derive(Debug, thiserror::Error)]
pub enum NotWritten {
    /// A claim can't be written: split the batch to find it.
    #[error("{1}")]
    Poison(Reason, String),
    /// The buyers' locks were lost before the commit.
    #[error("the buyers' locks were lost before the commit")]
    LocksLost,
    /// The lane has another epoch than the caller's: what was read from the log may not be there any more.
    #[error("the lane has another epoch than the one that these claims were read in")]
    Stale,
    /// Postgres doesn't answer, or not now.
    #[error(transparent)]
    Postgres(sqlx::Error),
}

impl From<sqlx::Error> for NotWritten {
    /// An error about the data is poison; any other may pass.
    fn from(error: sqlx::Error) -> Self {
        if postgres::is_data_error(&error) {
            let constraint = postgres::violated_constraint(&error).unwrap_or("none");
            let detail = format!("{error} (constraint: {constraint})");
            return Self::Poison(Reason::Invalid, detail);
        }
        Self::Postgres(error)
    }
}

impl From<NoPrices> for NotWritten {
    fn from(reason: NoPrices) -> Self {
        match reason {
            NoPrices::Missing(_) => Self::Poison(Reason::Invalid, reason.to_string()),
            NoPrices::Postgres(error) => error.into(),
        }
    }
}

/// New orders as columns, for UNNEST.
struct Columns {
    ids: Vec<i64>,
    coupons: Vec<i64>,
    users: Vec<i64>,
    times: Vec<DateTime<Utc>>,
    cents: Vec<i64>,
    currencies: Vec<String>,
}

impl Columns {
    fn of(claims: &[LoggedClaim], prices: Vec<Price>) -> Self {
        fn column<T>(claims: &[LoggedClaim], of: impl Fn(&LoggedClaim) -> T) -> Vec<T> {
            claims.iter().map(of).collect()
        }
        let (cents, currencies) =
            prices.into_iter().map(|price| (price.pay_cents, price.currency)).unzip();
        Self {
            cents,
            currencies,
            ids: column(claims, |claim| claim.order_id.get()),
            coupons: column(claims, |claim| claim.coupon_id.get()),
            users: column(claims, |claim| claim.user_id.get()),
            times: column(claims, |claim| claim.claimed_at),
        }
    }
}

/// Inserts all claims. False if one of them, or its buyer's place, is there already, or its time is too far ahead; then the
/// transaction is of no more use. In id order, so that two workers with overlapping batches never wait for each other in a circle.
///
/// Arrays in the list of the SELECT go row by row into the INSERT, in their order; `FROM UNNEST ... ORDER BY` would keep
/// all rows and sort them first, for a twentieth of Postgres's time.
pub(super) async fn insert_new(
    tx: &mut Transaction<'_, Postgres>,
    claims: &[LoggedClaim],
    terms: &Terms,
) -> Result<bool, NotWritten> {
    let mut claims = claims.to_vec();
    claims.sort_unstable_by_key(|claim| claim.order_id);
    let prices = terms.prices(&mut *tx, &claims).await?;
    let newest = claims.last().map(|claim| claim.claimed_at);
    let Columns { ids, coupons, users, times, cents, currencies } = Columns::of(&claims, prices);
    let inserted = sqlx::query!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_cents, currency, pay_by)
         SELECT UNNEST($1::bigint[]), UNNEST($2::bigint[]), 'flash', UNNEST($3::bigint[]),
                least(UNNEST($4::timestamptz[]), now()), UNNEST($5::bigint[]), UNNEST($6::text[]),
                greatest(least(UNNEST($4), now()) + make_interval(secs => $7), now() + make_interval(secs => $8))
         WHERE $9::timestamptz <= now() + make_interval(secs => $10)",
        &ids,
        &coupons,
        &users,
        &times,
        &cents,
        &currencies,
        terms.payment_window.as_secs_f64(),
        terms.pay_time_min().as_secs_f64(),
        newest,
        limits::ORDER_AHEAD_MAX.as_secs_f64(),
    )
    .execute(&mut **tx)
    .await;
    let are_new = match inserted {
        Err(sqlx::Error::Database(error)) if error.is_unique_violation() => false,
        inserted => inserted?.rows_affected() == claims.len() as u64,
    };
    if are_new && cents.contains(&FREE) {
        pay_free(&mut *tx, &ids).await?;
    }
    Ok(are_new)
}

/// Inserts the claims that aren't there. Returns the order ids that were inserted, with their coupons. Of claims that
/// contradict each other the earlier one in the log wins.
pub(super) async fn insert_missing(
    tx: &mut Transaction<'_, Postgres>,
    claims: &[LoggedClaim],
    terms: &Terms,
) -> Result<BTreeMap<OrderId, CouponId>, NotWritten> {
    let mut ids = HashSet::new();
    let mut buyers = HashSet::new();
    let (first, contradicting): (Vec<_>, Vec<_>) = claims.iter().copied().partition(|claim| {
        let is_first_of_buyer = buyers.insert((claim.coupon_id, claim.user_id));
        ids.insert(claim.order_id) && is_first_of_buyer
    });
    let mut inserted = insert_in_id_order(tx, &first, terms).await?;
    if !contradicting.is_empty() {
        inserted.extend(insert_in_id_order(tx, &contradicting, terms).await?);
    }
    Ok(inserted)
}

async fn insert_in_id_order(
    tx: &mut Transaction<'_, Postgres>,
    claims: &[LoggedClaim],
    terms: &Terms,
) -> Result<BTreeMap<OrderId, CouponId>, NotWritten> {
    let prices = terms.prices(&mut *tx, claims).await?;
    let Columns { ids, coupons, users, times, cents, currencies } = Columns::of(claims, prices);
    let rows = sqlx::query!(
        r#"INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_cents, currency, pay_by)
           SELECT id, coupon_id, 'flash', user_id, least(claimed_at, now()), pay_cents, currency,
                  greatest(least(claimed_at, now()) + make_interval(secs => $7), now() + make_interval(secs => $8))
           FROM UNNEST($1::bigint[], $2::bigint[], $3::bigint[], $4::timestamptz[], $5::bigint[], $6::text[])
                AS claim (id, coupon_id, user_id, claimed_at, pay_cents, currency)
           ORDER BY id
           ON CONFLICT DO NOTHING
           RETURNING id AS "id: OrderId", coupon_id AS "coupon_id: CouponId""#,
        &ids,
        &coupons,
        &users,
        &times,
        &cents,
        &currencies,
        terms.payment_window.as_secs_f64(),
        terms.pay_time_min().as_secs_f64(),
    )
    .fetch_all(&mut **tx)
    .await?;
    if cents.contains(&FREE) {
        pay_free(&mut *tx, &ids).await?;
    }
    Ok(rows.into_iter().map(|row| (row.id, row.coupon_id)).collect())
}

/// Makes those of these orders paid that cost nothing, as they are written: no gateway takes a payment of nothing. They
/// leave the lists of unpaid orders.
async fn pay_free(tx: &mut Transaction<'_, Postgres>, orders: &[i64]) -> sqlx::Result<()> {
    sqlx::query!(
        "WITH paid AS (
             UPDATE orders SET status = 'paid', paid_at = now(), pay_method = 'balance', updated_at = now()
             WHERE id = ANY($1) AND status = 'unpaid' AND pay_cents = 0 RETURNING id, coupon_id, user_id),
         coded AS (INSERT INTO redemptions (order_id) SELECT id FROM paid)
         INSERT INTO stock_returns (order_id, what, coupon_id, user_id)
         SELECT id, 'place', coupon_id, user_id FROM paid",
        orders,
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Claims that may become rows, and the fate of the others.
pub(super) struct Aside {
    /// Claims that may become rows, or are rows.
    pub(super) rest: Vec<LoggedClaim>,
    /// The others: dead letters.
    pub(super) written: Written,
}

/// Makes dead letters of claims that can't become rows: those whose order id is too far ahead of the clock, and those of
/// archived sales that are no rows. A sale is archived when each of its claims is a row, so the latter come from an older
/// log, and the orders may have been deleted since.
pub(super) async fn set_aside(
    tx: &mut Transaction<'_, Postgres>,
    lane: Lane,
    claims: &[LoggedClaim],
) -> sqlx::Result<Aside> {
    let latest = postgres::time(&mut **tx).await? + limits::ORDER_AHEAD_MAX;
    let (ahead, claims): (Vec<_>, Vec<_>) =
        claims.iter().copied().partition(|claim| claim.claimed_at > latest);
    let coupons: Vec<i64> = claims.iter().map(|claim| claim.coupon_id.get()).collect();
    let archived = stock::archived_among(&mut *tx, &coupons).await?;
    let (old, mut rest): (Vec<_>, Vec<_>) =
        claims.into_iter().partition(|claim| archived.contains(&claim.coupon_id));
    let mut gone = Vec::new();
    if !old.is_empty() {
        let rows = existing(tx, &old).await?;
        let (known, missing): (Vec<_>, Vec<_>) =
            old.into_iter().partition(|claim| rows.contains_key(&claim.order_id));
        rest.extend(known);
        gone = missing;
    }
    let mut written = Written::default();
    (written.ahead, written.repeated) =
        put_aside(tx, lane, &ahead, (Reason::Invalid, AHEAD)).await?;
    let (letters, repeated) = put_aside(tx, lane, &gone, (Reason::Archived, ARCHIVED)).await?;
    written.archived = letters;
    written.repeated += repeated;
    Ok(Aside { rest, written })
}

/// Returns how many dead letters are new, and how many were there already.
async fn put_aside(
    tx: &mut Transaction<'_, Postgres>,
    lane: Lane,
    claims: &[LoggedClaim],
    (reason, error): (Reason, &'static str),
) -> sqlx::Result<(usize, usize)> {
    let letter = |claim| DeadLetter::of_claim(lane, claim, reason, error);
    let letters: Vec<DeadLetter> = claims.iter().map(letter).collect();
    if letters.is_empty() {
        return Ok((0, 0));
    }
    let new = dead_letter::insert_all(&mut **tx, &letters).await?;
    Ok((new, letters.len() - new))
}

/// Owner of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    coupon: CouponId,
    user: UserId,
}

impl Owner {
    /// Whether the row under the claim's order id is the claim's own.
    pub(super) fn is_of(self, claim: &LoggedClaim) -> bool {
        self.coupon == claim.coupon_id && self.user == claim.user_id
    }
}

/// Owners of the rows under these order ids, in any status. Sees the rows that a concurrent writer has committed since the
/// INSERT waited for it, because each statement takes a new snapshot (READ COMMITTED).
pub(super) async fn existing(
    tx: &mut Transaction<'_, Postgres>,
    claims: &[LoggedClaim],
) -> sqlx::Result<BTreeMap<OrderId, Owner>> {
    postgres::plan_for_values(&mut *tx).await?;
    let ids: Vec<i64> = claims.iter().map(|claim| claim.order_id.get()).collect();
    let rows = sqlx::query!(
        r#"SELECT id AS "id: OrderId", coupon_id AS "coupon: CouponId",
                  user_id AS "user: UserId"
           FROM orders WHERE id = ANY($1)"#,
        &ids,
    )
    .fetch_all(&mut **tx)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, Owner { coupon: row.coupon, user: row.user })).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(coupon: i64, user: i64, order: i64) -> LoggedClaim {
        let user = UserId::new(user).expect("an id");
        let order = OrderId::new(order).expect("an id");
        LoggedClaim::without_entry(CouponId::compose(coupon, 1), user, order)
    }

    #[test]
    fn a_row_is_the_claim_s_own_by_coupon_and_user() {
        let user = |user| UserId::new(user).expect("an id");
        for (coupon, user, is_own) in
            [(1, user(42), true), (1, user(43), false), (2, user(42), false)]
        {
            let owner = Owner { coupon: CouponId::compose(coupon, 1), user };
            assert_eq!(owner.is_of(&claim(1, 42, 7)), is_own, "{owner:?}");
        }
    }

    #[test]
    fn columns_keep_the_order_of_the_claims() {
        let claims = [claim(1, 42, 7), claim(2, 41, 6)];
        let price = |pay_cents| Price { pay_cents, currency: "EUR".to_owned() };
        let columns = Columns::of(&claims, vec![price(5), price(4)]);
        assert_eq!((columns.ids, columns.users), (vec![7, 6], vec![42, 41]));
        assert_eq!(columns.coupons, claims.map(|claim| claim.coupon_id.get()));
        assert_eq!(columns.times, claims.map(|claim| claim.claimed_at));
        assert_eq!(columns.cents, [5, 4]);
        assert_eq!(columns.currencies, ["EUR", "EUR"]);
    }

    #[test]
    fn only_an_error_about_the_data_is_poison() {
        let away = NotWritten::from(sqlx::Error::PoolTimedOut);
        assert!(matches!(away, NotWritten::Postgres(_)), "{away:?}");
        let missing = NotWritten::from(NoPrices::Missing(CouponId::compose(1, 1)));
        assert_eq!(missing.to_string(), "coupon 1024 has no price");
        assert!(matches!(missing, NotWritten::Poison(Reason::Invalid, _)));
        let away = NotWritten::from(NoPrices::Postgres(sqlx::Error::PoolTimedOut));
        assert!(matches!(away, NotWritten::Postgres(_)), "{away:?}");
    }
}
