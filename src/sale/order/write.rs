//! Batches of accepted claims become rows. The queries stand in `insert.rs`; `overflow.rs` writes batches with more
//! claims than units.
//!
//! Constraints settle every race here: the primary key (an order id is used once), the partial unique indexes (one
//! live order for each buyer) and `sold + n <= total`. Locks only spare double work.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{Connection, PgConnection, PgPool, Postgres, Transaction};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::base::limits;
use crate::kit::postgres::Unfinished;
use crate::sale::coupon::stock;
use crate::sale::coupon::stock::Sold;
use crate::sale::fence;
use crate::sale::ids::{CouponId, Lane, OrderId, UserId, order_id};
use crate::sale::log::LoggedClaim;
use crate::sale::order::dead_letter::{self, DeadLetter, Reason};

use super::insert::{
    CONFLICT, NotWritten, Written, existing, insert_missing, insert_new, set_aside,
};
use super::overflow;
use super::terms::Terms;

/// Part of a batch that has to be written.
#[derive(Clone, Copy)]
enum Amount {
    All,
    WhatFits,
}

/// Bound on the closed orders that one user leaves of one coupon within [`limits::CLOSED_ORDERS_TIME`], by the
/// seconds in their ids.
#[derive(Clone, Copy, Debug)]
pub struct ClosedOrders {
    /// The number; 0 for no bound.
    pub most: u32,
}

impl ClosedOrders {
    /// The order id behind which closed orders count at this time.
    pub(super) fn counted_behind(self, now: DateTime<Utc>) -> i64 {
        order_id::first_at(now - limits::CLOSED_ORDERS_TIME)
    }

    /// Time until the oldest of as many closed orders as may be counts no more.
    pub(super) fn wait(self, now: DateTime<Utc>, oldest: i64) -> Duration {
        let age = now - order_id::time_of(oldest);
        // A second more, because ids tell seconds only.
        let rest = limits::CLOSED_ORDERS_TIME + Duration::from_secs(1);
        rest.saturating_sub(age.to_std().unwrap_or_default())
    }
}

/// Reads and writes orders. Clones share the pool.
#[derive(Clone)]
pub struct Orders {
    pub(super) pool: PgPool,
    /// Time after which a batch is broken off, the wait for its connection included.
    batch_timeout: Duration,
    terms: Terms,
}

impl Orders {
    /// Orders in this database, written in batches that may take `batch_timeout` each, and to be paid within
    /// `payment_window` from their claim.
    pub fn new(pool: PgPool, batch_timeout: Duration, payment_window: Duration) -> Self {
        Self { pool, batch_timeout, terms: Terms::new(payment_window) }
    }

    /// Creates the order of a regular coupon, if the coupon is active, the user has no unpaid one, and not as many closed
    /// ones as may be; an order that costs nothing is paid. Its id has 63 in the place of the lane (`sale/ids/order_id.rs`).
    pub async fn insert_regular(
        &self,
        coupon: CouponId,
        user: UserId,
        closed: ClosedOrders,
    ) -> sqlx::Result<Option<OrderId>> {
        sqlx::query_scalar!(
            r#"WITH written AS (
               INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_cents, currency, pay_by,
                                   status, paid_at, pay_method)
               SELECT ((floor(extract(epoch FROM now()))::bigint - 1640995200) << 32) | (63::bigint << 26)
                          | nextval('regular_orders'),
                      id, kind, $2, now(), pay_cents, currency, now() + make_interval(secs => $3),
                      CASE pay_cents WHEN 0 THEN 'paid' ELSE 'unpaid' END, CASE pay_cents WHEN 0 THEN now() END,
                      CASE pay_cents WHEN 0 THEN 'balance' END
               FROM coupons
               WHERE id = $1 AND kind = 'regular' AND state = 'active'
                 AND ($5::bigint = 0 OR NOT has_closed_orders($2, $1,
                          (floor(extract(epoch FROM now()))::bigint - 1640995200 - $4) << 32, $5))
               ON CONFLICT DO NOTHING
               RETURNING id, status),
               coded AS (INSERT INTO redemptions (order_id) SELECT id FROM written WHERE status = 'paid')
               SELECT id AS "id: OrderId" FROM written"#,
            coupon.get(),
            user.get(),
            self.terms.payment_window.as_secs_f64(),
            limits::CLOSED_ORDERS_TIME.as_secs().cast_signed(),
            i64::from(closed.most),
        )
        .fetch_optional(&self.pool)
        .await
    }

    /// Time after which the user may claim this regular coupon again, if as many orders as may be have been closed.
    pub async fn closed_orders_wait(
        &self,
        coupon: CouponId,
        user: UserId,
        closed: ClosedOrders,
    ) -> sqlx::Result<Option<Duration>> {
        if closed.most == 0 {
            return Ok(None);
        }
        let oldest = sqlx::query!(
            r#"SELECT id, now() AS "now!" FROM orders
               WHERE user_id = $1 AND id > (floor(extract(epoch FROM now()))::bigint - 1640995200 - $2) << 32
                 AND coupon_id = $3 AND NOT is_live(status)
               ORDER BY id DESC OFFSET $4 LIMIT 1"#,
            user.get(),
            limits::CLOSED_ORDERS_TIME.as_secs().cast_signed(),
            coupon.get(),
            i64::from(closed.most) - 1,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(oldest.map(|oldest| closed.wait(oldest.now, oldest.id)))
    }

    /// Whether there is a sale of this coupon.
    pub async fn has_sale(&self, coupon: CouponId) -> sqlx::Result<bool> {
        stock::exists(&mut *self.pool.acquire().await?, coupon).await
    }

    /// Writes a batch of claims in one transaction: rows, dead letters for conflicts, units
    /// sold. Repeating it changes nothing. The lane has to have the epoch still in which the claims were read.
    ///
    /// Broken off when `locks_lost` is cancelled, and after the time that a batch may take, whatever the server does;
    /// the locks mustn't be held for ever.
    ///
    /// # Errors
    ///
    /// See [`NotWritten`]. Nothing has been written then, unless it was broken off in mid-commit: a repeat finds out.
    pub async fn write(
        &self,
        lane: (Lane, i64),
        claims: &[LoggedClaim],
        locks_lost: &CancellationToken,
    ) -> Result<Written, NotWritten> {
        self.write_amount(Amount::All, lane, claims, locks_lost).await
    }

    /// Writes as many of these claims, all of one coupon, as it has units for, in the given order; the others become
    /// dead letters (`oversold`) in the same transaction. Otherwise as [`write`](Self::write).
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); [`NotWritten::Poison`] also when units came back meanwhile.
    pub async fn write_what_fits(
        &self,
        lane: (Lane, i64),
        claims: &[LoggedClaim],
        locks_lost: &CancellationToken,
    ) -> Result<Written, NotWritten> {
        self.write_amount(Amount::WhatFits, lane, claims, locks_lost).await
    }

    async fn write_amount(
        &self,
        amount: Amount,
        lane: (Lane, i64),
        claims: &[LoggedClaim],
        locks_lost: &CancellationToken,
    ) -> Result<Written, NotWritten> {
        let deadline = Instant::now() + self.batch_timeout;
        let acquired = timeout_at(deadline, Unfinished::acquire(&self.pool)).await;
        let mut unfinished = acquired.map_err(|_| sqlx::Error::PoolTimedOut)??;
        let writing = write_on(unfinished.connection(), amount, lane, claims, &self.terms);
        let written = tokio::select! {
            biased;
            () = locks_lost.cancelled() => return Err(NotWritten::LocksLost),
            written = timeout_at(deadline, writing) => {
                written.map_err(|_| sqlx::Error::PoolTimedOut)?
            }
        };
        unfinished.finished();
        written
    }
}

async fn write_on(
    connection: &mut PgConnection,
    amount: Amount,
    (lane, epoch): (Lane, i64),
    claims: &[LoggedClaim],
    terms: &Terms,
) -> Result<Written, NotWritten> {
    let mut tx = begin_in(connection, lane, epoch).await?;
    if let Amount::WhatFits = amount {
        let written = overflow::write(&mut tx, lane, claims, terms).await;
        return end(tx, written).await;
    }
    // Rows are there already only after a worker has died, or an operator has written by hand. So the first try
    // assumes that there are none: looking before each row costs Postgres a fifth more.
    match insert_counted(&mut tx, claims, terms).await {
        Ok(true) => {
            let written = Written { inserted: claims.len(), ..Written::default() };
            end(tx, Ok(written)).await
        }
        Ok(false) => {
            tx.rollback().await?;
            loop {
                tx = begin_in(connection, lane, epoch).await?;
                match write_missing(&mut tx, lane, claims, terms).await {
                    // Once for each sale at most: it stays archived.
                    Ok(None) => tx.rollback().await?,
                    Ok(Some(written)) => return end(tx, Ok(written)).await,
                    Err(error) => return end(tx, Err(error)).await,
                }
            }
        }
        Err(error) => end(tx, Err(error)).await,
    }
}

/// Inserts all claims, and counts them as sold. False if one of them is there already, or its sale is archived; then the
/// transaction is of no more use.
///
/// A sale can't be archived between the count and the commit, because counting locks its row.
async fn insert_counted(
    tx: &mut Transaction<'_, Postgres>,
    claims: &[LoggedClaim],
    terms: &Terms,
) -> Result<bool, NotWritten> {
    if !insert_new(tx, claims, terms).await? {
        return Ok(false);
    }
    let coupons = claims.iter().map(|claim| claim.coupon_id);
    Ok(count_sold(tx, coupons).await? == Sold::Counted)
}

/// Begins a transaction that holds the lane's epoch, so that the epoch can't be raised before its end.
async fn begin_in(
    connection: &mut PgConnection,
    lane: Lane,
    epoch: i64,
) -> Result<Transaction<'_, Postgres>, NotWritten> {
    let mut tx = connection.begin().await?;
    if fence::table::hold_epoch(&mut tx, lane).await? != Some(epoch) {
        tx.rollback().await?;
        return Err(NotWritten::Stale);
    }
    Ok(tx)
}

async fn end(
    tx: Transaction<'_, Postgres>,
    written: Result<Written, NotWritten>,
) -> Result<Written, NotWritten> {
    // Not left to the drop of `tx`, which rolls back some time later: until then these rows would stand in the way of
    // the next try, on another connection.
    match written {
        Ok(_) => tx.commit().await?,
        Err(_) => tx.rollback().await?,
    }
    written
}

/// Writes claims of which some may be there already, in these or in other orders. `None` if one of their sales has been
/// archived meanwhile; then the transaction is of no more use.
async fn write_missing(
    tx: &mut Transaction<'_, Postgres>,
    lane: Lane,
    claims: &[LoggedClaim],
    terms: &Terms,
) -> Result<Option<Written>, NotWritten> {
    let aside = set_aside(tx, lane, claims).await?;
    let (claims, mut written) = (&aside.rest[..], aside.written);
    let inserted = insert_missing(tx, claims, terms).await?;
    written.inserted = inserted.len();
    let rows = existing(tx, claims).await?;
    let mut conflicts = Vec::new();
    for claim in claims {
        if rows.get(&claim.order_id).is_some_and(|owner| owner.is_of(claim)) {
            continue;
        }
        conflicts.push(DeadLetter::of_claim(lane, claim, Reason::Conflict, CONFLICT));
    }
    let new_conflicts = dead_letter::insert_all(&mut **tx, &conflicts).await?;
    written.conflicts += new_conflicts;
    written.repeated += claims.len() - written.inserted - new_conflicts;
    let counted = count_sold(tx, inserted.into_values()).await?;
    Ok((counted == Sold::Counted).then_some(written))
}

/// Counts a unit of each of these coupons as sold. Tells whether one of their sales is archived.
async fn count_sold(
    tx: &mut Transaction<'_, Postgres>,
    coupons: impl Iterator<Item = CouponId>,
) -> Result<Sold, NotWritten> {
    // In coupon order, so that two workers never wait for each other in a circle.
    let mut sold: BTreeMap<CouponId, i64> = BTreeMap::new();
    for coupon in coupons {
        *sold.entry(coupon).or_default() += 1;
    }
    let mut counted = Sold::Counted;
    for (coupon, orders) in sold {
        match stock::add_sold(&mut *tx, coupon, orders).await? {
            Sold::Counted => {}
            Sold::CountedInArchive => counted = Sold::CountedInArchive,
            Sold::NoUnits => return Err(no_units(tx, coupon, orders).await?),
        }
    }
    Ok(counted)
}

async fn no_units(
    tx: &mut Transaction<'_, Postgres>,
    coupon: CouponId,
    orders: i64,
) -> sqlx::Result<NotWritten> {
    let (reason, detail) = if stock::exists(&mut *tx, coupon).await? {
        (Reason::Oversold, format!("coupon {coupon} hasn't {orders} more units to sell"))
    } else {
        (Reason::Invalid, format!("there is no flash coupon {coupon}"))
    };
    Ok(NotWritten::Poison(reason, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_order_counts_for_an_hour_and_a_second_from_the_second_in_its_id() {
        let closed = ClosedOrders { most: 3 };
        let id = order_id::first_at("2026-11-21T12:00:00Z".parse().expect("a time"));
        let time = order_id::time_of(id);
        for (age, rest) in [(0, 3_601), (1, 3_600), (3_600, 1), (3_601, 0), (4_000, 0), (-5, 3_601)]
        {
            let now = time + chrono::TimeDelta::seconds(age);
            assert_eq!(closed.wait(now, id + 77), Duration::from_secs(rest), "after {age} s");
        }
        let counted = |age| closed.counted_behind(time + chrono::TimeDelta::seconds(age));
        assert_eq!([3_599, 3_600, 3_601].map(|age| counted(age) <= id), [true, true, false]);
        assert_eq!(counted(3_600), id);
    }
}
