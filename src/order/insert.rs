//! Inserts the rows of claims, all or none.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Postgres, Transaction};

use super::dead_letter::Reason;
use crate::base::limits;
use crate::coupon::prices::{self, Price, Prices};
use crate::log::LoggedClaim;
use crate::store::postgres;

/// The price of an order that is paid as soon as it is written.
const FREE: i64 = 0;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub inserted: usize,
    /// Claims that were rows or dead letters already.
    pub repeated: usize,
    /// Number of new dead letters, by reason.
    pub dead_letters: Vec<(Reason, usize)>,
}

/// Why a batch wasn't written. Nothing was written, unless the batch was broken off during its commit.
#[derive(Debug, thiserror::Error)]
pub enum NotWritten {
    /// Postgres refuses a claim. Split the batch to find it.
    #[error("{0}")]
    Poison(String),
    /// The buyers' locks were lost before the commit was confirmed.
    #[error("the buyers' locks were lost before the commit")]
    LocksLost,
    /// The lane has another epoch than the caller's, so the entries may no longer be in the log.
    #[error("the lane has another epoch than the one that these claims were read in")]
    Stale,
    /// Postgres lacks the order that was acknowledged last, so it went back in time.
    #[error("Postgres lacks order {0}, which was acknowledged")]
    LastMissing(i64),
    /// Postgres doesn't answer, or can't write now.
    #[error(transparent)]
    Postgres(sqlx::Error),
}

impl From<sqlx::Error> for NotWritten {
    /// An error about the data is poison; any other may pass.
    fn from(error: sqlx::Error) -> Self {
        if postgres::is_data_error(&error) {
            let constraint = postgres::violated_constraint(&error).unwrap_or("none");
            return Self::Poison(format!("{error} (constraint: {constraint})"));
        }
        Self::Postgres(error)
    }
}

/// Terms of the orders that are written: price and deadline, both as of the claim. Clones share the cache of prices.
#[derive(Clone)]
pub(super) struct Terms {
    prices: Prices,
    /// Time to pay, from the claim on.
    pub(super) payment_window: Duration,
    /// Whether claims are noted as events.
    pub(super) events: bool,
}

impl Terms {
    pub(super) fn new(payment_window: Duration, events: bool) -> Self {
        Self { prices: Prices::default(), payment_window, events }
    }

    /// Least time to pay from the writing of the order on, so that a claim that waited in the log can still be paid.
    fn pay_time_min(&self) -> Duration {
        self.payment_window.min(limits::PAY_TIME_MIN)
    }

    /// The price of each of these claims: at its revision, or at its time if its entry is gone.
    async fn prices(
        &self,
        connection: &mut PgConnection,
        claims: &[LoggedClaim],
    ) -> Result<Vec<Price>, NotWritten> {
        let mut prices = Vec::with_capacity(claims.len());
        for claim in claims {
            let coupon = claim.coupon_id;
            let price = match claim.revision {
                Some(revision) => self.prices.at(&mut *connection, coupon, revision).await?,
                None => prices::at_time(&mut *connection, coupon, claim.claimed_at).await?,
            };
            let missing = || NotWritten::Poison(format!("coupon {coupon} has no price"));
            prices.push(price.ok_or_else(missing)?);
        }
        Ok(prices)
    }
}

/// Inserts all claims in id order, so that two workers with overlapping batches can't deadlock. Returns order, coupon,
/// user and price of each claim, to be noted as events; nothing without events. `None` if a row has the same order id
/// or the same buyer, or if a claim's time is too far ahead. The transaction is unusable then.
///
/// The SELECT list unnests the arrays row by row, in their order. `FROM UNNEST ... ORDER BY` would first collect and
/// sort all rows, at 5 % of Postgres's time.
pub(super) async fn insert_all(
    tx: &mut Transaction<'_, Postgres>,
    claims: &[LoggedClaim],
    terms: &Terms,
) -> Result<Option<Vec<i64>>, NotWritten> {
    let mut claims = claims.to_vec();
    claims.sort_unstable_by_key(|claim| claim.order_id);
    let prices = terms.prices(&mut *tx, &claims).await?;
    let newest = claims.last().map(|claim| claim.claimed_at);
    let ids = column(&claims, |claim| claim.order_id.get());
    let (cents, currencies): (Vec<i64>, Vec<String>) =
        prices.into_iter().map(|price| (price.pay_cents, price.currency)).unzip();
    let inserted = sqlx::query!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_cents, currency, pay_by)
         SELECT UNNEST($1::bigint[]), UNNEST($2::bigint[]), 'flash', UNNEST($3::bigint[]),
                least(UNNEST($4::timestamptz[]), now()), UNNEST($5::bigint[]), UNNEST($6::text[]),
                greatest(least(UNNEST($4), now()) + make_interval(secs => $7), now() + make_interval(secs => $8))
         WHERE $9::timestamptz <= now() + make_interval(secs => $10)",
        &ids,
        &column(&claims, |claim| claim.coupon_id.get()),
        &column(&claims, |claim| claim.user_id.get()),
        &column(&claims, |claim| claim.claimed_at) as &[DateTime<Utc>],
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
    if !are_new || !terms.events {
        return Ok(are_new.then(Vec::new));
    }
    let noted = claims.iter().zip(&cents).flat_map(|(claim, cents)| {
        [claim.order_id.get(), claim.coupon_id.get(), claim.user_id.get(), *cents]
    });
    Ok(Some(noted.collect()))
}

fn column<T>(claims: &[LoggedClaim], of: impl Fn(&LoggedClaim) -> T) -> Vec<T> {
    claims.iter().map(of).collect()
}

/// Marks those of these orders as paid that cost nothing: no gateway takes a payment of zero. The orders leave their
/// users' lists of unpaid orders.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pay_time_min_is_the_payment_window_where_that_is_shorter() {
        let least = limits::PAY_TIME_MIN;
        for (window, expected) in [(least * 3, least), (least, least), (least / 3, least / 3)] {
            assert_eq!(Terms::new(window, false).pay_time_min(), expected, "{window:?}");
        }
    }
}
