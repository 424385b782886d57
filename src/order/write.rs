//! Writes batches of accepted claims.
//!
//! Constraints settle every race: the primary key (an order id is used once), the partial unique indexes (one live
//! order for each buyer), and `sold + n <= total`. Locks only save double work.
//!
//! The first try assumes that every claim is new and has a unit: checking first would cost Postgres a fifth more. If
//! that fails (a worker has died, or an older Redis has sold more), the second try locks the rows of the sales, so that
//! units and archiving can't change, and decides claim by claim.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{Connection, PgConnection, PgPool, Postgres, Transaction};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::closed::ClosedOrders;
use super::dead_letter::{self, DeadLetter, Reason};
use super::insert::{NotWritten, Terms, Written, insert_all};
use crate::base::limits;
use crate::coupon::stock;
use crate::coupon::stock::LockedSale;
use crate::events;
use crate::log::LoggedClaim;
use crate::store::ids::{CouponId, Lane, OrderId, UserId};
use crate::store::postgres::{self, Unfinished};

/// Reads and writes orders. Clones share the pool.
#[derive(Clone)]
pub struct Orders {
    pub(super) pool: PgPool,
    /// Time limit of a batch, including the wait for a connection.
    batch_timeout: Duration,
    terms: Terms,
}

#[derive(Clone, Copy, Debug)]
pub enum Origin {
    /// The log, or the harvest of a recovery. Postgres has to have the order that was acknowledged last: order id,
    /// coupon.
    Lane(Option<(i64, i64)>),
    /// A dead letter, which stays open until its claim is an order.
    Letter,
}

impl Orders {
    /// Orders in this database. A batch may take `batch_timeout`; an order has to be paid within `payment_window` of
    /// its claim. With `events`, claims are noted as events.
    pub fn new(
        pool: PgPool,
        batch_timeout: Duration,
        payment_window: Duration,
        events: bool,
    ) -> Self {
        Self { pool, batch_timeout, terms: Terms::new(payment_window, events) }
    }

    /// Creates an order of a regular coupon; one that costs nothing is paid at once. `None` if the coupon isn't active,
    /// the user has an unpaid order of it (or a free one that isn't redeemed), or has closed too many. The order id has
    /// 63 in place of the lane (`store/ids/order_id.rs`).
    pub async fn insert_regular(
        &self,
        coupon: CouponId,
        user: UserId,
        closed: ClosedOrders,
    ) -> sqlx::Result<Option<OrderId>> {
        let written = sqlx::query!(
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
               RETURNING id, status, pay_cents),
               coded AS (INSERT INTO redemptions (order_id) SELECT id FROM written WHERE status = 'paid')
               SELECT id AS "id: OrderId", pay_cents FROM written"#,
            coupon.get(),
            user.get(),
            self.terms.payment_window.as_secs_f64(),
            limits::CLOSED_ORDERS_TIME.as_secs().cast_signed(),
            i64::from(closed.most),
        );
        if !self.terms.events {
            return Ok(written.fetch_optional(&self.pool).await?.map(|row| row.id));
        }
        let mut tx = postgres::begin(&self.pool).await?;
        let written = written.fetch_optional(&mut *tx).await?;
        if let Some(row) = &written {
            let claim = [row.id.get(), coupon.get(), user.get(), row.pay_cents];
            events::note_claims(&mut tx, &claim, []).await?;
        }
        tx.commit().await?;
        Ok(written.map(|row| row.id))
    }

    /// Writes a batch of claims in one transaction: rows, units sold, and dead letters of claims that can't become
    /// rows. A repeat changes nothing. The lane must still have the epoch in which the claims were read.
    ///
    /// Breaks off when `locks_lost` is cancelled, or when the batch's time is over, whatever the server does: the locks
    /// mustn't be held for ever.
    ///
    /// # Errors
    ///
    /// See [`NotWritten`]. Nothing has been written then, unless the batch was broken off during the commit; a repeat
    /// finds out.
    pub async fn write(
        &self,
        lane: (Lane, i64),
        origin: Origin,
        claims: &[LoggedClaim],
        locks_lost: &CancellationToken,
    ) -> Result<Written, NotWritten> {
        let deadline = Instant::now() + self.batch_timeout;
        let acquired = timeout_at(deadline, Unfinished::acquire(&self.pool)).await;
        let mut unfinished = acquired.map_err(|_| sqlx::Error::PoolTimedOut)??;
        let writing = write_on(unfinished.connection(), lane, origin, claims, &self.terms);
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
    (lane, epoch): (Lane, i64),
    origin: Origin,
    claims: &[LoggedClaim],
    terms: &Terms,
) -> Result<Written, NotWritten> {
    let last = match origin {
        Origin::Lane(last) => last,
        Origin::Letter => None,
    };
    let mut tx = begin_in(connection, (lane, epoch), last).await?;
    let mut written = match insert_counted(&mut tx, claims, terms).await {
        // Checked after the units are counted, which locks the sales: letters written by other workers are visible by
        // now.
        Ok(Some(done)) => match dead_letter::open_among(&mut tx, claims).await {
            Ok(letters) => Ok(letters.is_empty().then_some(done)),
            Err(error) => Err(error.into()),
        },
        // The second try finds out which claims Postgres would refuse for a known reason.
        Err(NotWritten::Poison(_)) => Ok(None),
        tried => tried,
    };
    while let Ok(None) = written {
        tx.rollback().await?;
        tx = begin_in(connection, (lane, epoch), last).await?;
        written = write_each(&mut tx, (lane, origin), claims, terms).await;
    }
    // Dropping `tx` would roll back some time later. Until then its rows would block the next try, on another
    // connection.
    match written {
        Ok(_) => tx.commit().await?,
        Err(_) => tx.rollback().await?,
    }
    written.map(Option::unwrap_or_default)
}

/// Begins a transaction that locks the lane's epoch. The order that was acknowledged last has to be there, unless its
/// sale is archived: the next acknowledgement would hide that it is missing.
async fn begin_in(
    connection: &mut PgConnection,
    (lane, epoch): (Lane, i64),
    last: Option<(i64, i64)>,
) -> Result<Transaction<'_, Postgres>, NotWritten> {
    let mut tx = connection.begin().await?;
    let (order, coupon) = last.unzip();
    // One query for both, because every batch runs it.
    let missing = sqlx::query_scalar!(
        r#"SELECT CASE WHEN NOT EXISTS (SELECT FROM orders WHERE id = $3) AND NOT EXISTS (
                      SELECT FROM flash_sales WHERE coupon_id = $4 AND archived_at IS NOT NULL) THEN $3::bigint END
           FROM lanes WHERE lane = $1 AND epoch = $2 FOR SHARE OF lanes"#,
        lane.get(),
        epoch,
        order,
        coupon,
    )
    .fetch_optional(&mut *tx)
    .await?;
    let refusal = match missing {
        Some(None) => return Ok(tx),
        Some(Some(order)) => NotWritten::LastMissing(order),
        None => NotWritten::Stale,
    };
    tx.rollback().await?;
    Err(refusal)
}

/// Inserts all claims, and counts them as sold. `None` if a claim has a row already, or no unit; the transaction is
/// unusable then.
async fn insert_counted(
    tx: &mut Transaction<'_, Postgres>,
    claims: &[LoggedClaim],
    terms: &Terms,
) -> Result<Option<Written>, NotWritten> {
    let Some(noted) = insert_all(tx, claims, terms).await? else {
        return Ok(None);
    };
    // By coupon, so that two workers can't deadlock.
    let mut sold: BTreeMap<CouponId, i64> = BTreeMap::new();
    for claim in claims {
        *sold.entry(claim.coupon_id).or_default() += 1;
    }
    for (coupon, orders) in &sold {
        if !stock::add_sold(&mut *tx, *coupon, *orders).await? {
            return Ok(None);
        }
    }
    if !noted.is_empty() {
        events::note_claims(&mut *tx, &noted, sold.into_keys()).await?;
    }
    Ok(Some(Written { inserted: claims.len(), ..Written::default() }))
}

/// Writes each claim that can become a row while units last, and makes dead letters of the others. Of contradicting
/// claims, the earlier one in the log wins. `None` if another transaction has inserted rows in between; this
/// transaction is unusable then.
async fn write_each(
    tx: &mut Transaction<'_, Postgres>,
    (lane, origin): (Lane, Origin),
    claims: &[LoggedClaim],
    terms: &Terms,
) -> Result<Option<Written>, NotWritten> {
    postgres::plan_for_values(&mut *tx).await?;
    let mut known = Known {
        sales: stock::lock(&mut *tx, claims.iter().map(|claim| claim.coupon_id)).await?,
        rows: rows(tx, claims).await?,
        holders: holders(tx, claims).await?,
        letters: match origin {
            Origin::Lane(_) => dead_letter::open_among(tx, claims).await?,
            Origin::Letter => HashSet::new(),
        },
        latest: postgres::time(&mut **tx).await? + limits::ORDER_AHEAD_MAX,
    };
    let mut written = Written::default();
    let (mut new, mut letters) = (Vec::new(), Vec::new());
    for claim in claims {
        match known.fate(claim) {
            Fate::Row => new.push(*claim),
            Fate::Repeat => written.repeated += 1,
            Fate::Letter(reason, detail) => {
                letters.push(DeadLetter::of_claim(lane, claim, reason, detail));
            }
        }
    }
    written.inserted = new.len();
    if !new.is_empty() && insert_counted(tx, &new, terms).await?.is_none() {
        return Ok(None);
    }
    let mut by_reason: BTreeMap<Reason, Vec<DeadLetter>> = BTreeMap::new();
    for letter in letters {
        by_reason.entry(letter.reason()).or_default().push(letter);
    }
    for (reason, letters) in by_reason {
        let new = dead_letter::insert_all(&mut **tx, &letters).await?;
        written.repeated += letters.len() - new;
        written.dead_letters.push((reason, new));
    }
    Ok(Some(written))
}

/// What decides about each claim of a batch.
struct Known {
    /// The sales, whose rows are locked.
    sales: BTreeMap<CouponId, LockedSale>,
    /// Coupon and buyer of the rows with these order ids, in any status.
    rows: HashMap<OrderId, (CouponId, UserId)>,
    /// Buyers with a live order.
    holders: HashSet<(CouponId, UserId)>,
    /// Claims that are open dead letters. An operator decides about them, even if they could be written by now.
    letters: HashSet<(CouponId, UserId, OrderId)>,
    /// The latest time that a claim may have.
    latest: DateTime<Utc>,
}

#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Row,
    Repeat,
    Letter(Reason, &'static str),
}

impl Known {
    /// Decides about a claim. A claim that becomes a row takes its unit and its buyer's place.
    fn fate(&mut self, claim: &LoggedClaim) -> Fate {
        const CONFLICT: Fate = Fate::Letter(
            Reason::Conflict,
            "its order id, or its buyer's place, belongs to another order",
        );
        let &LoggedClaim { order_id, coupon_id, user_id, claimed_at, .. } = claim;
        let buyer = (coupon_id, user_id);
        if let Some(owner) = self.rows.get(&order_id) {
            return if *owner == buyer { Fate::Repeat } else { CONFLICT };
        }
        if self.letters.contains(&(coupon_id, user_id, order_id)) {
            return Fate::Repeat;
        }
        if claimed_at > self.latest {
            // Its time would move all later order ids.
            return Fate::Letter(
                Reason::Invalid,
                "ALARM: its order id carries a time more than a day ahead of Postgres's clock: set the clock of Redis, and have the lane recovered",
            );
        }
        match self.sales.get_mut(&coupon_id) {
            None => Fate::Letter(Reason::Invalid, "there is no flash coupon with its coupon's id"),
            // A sale is archived only when all its claims are rows, so this claim comes from an older log.
            Some(sale) if sale.is_archived => Fate::Letter(
                Reason::Archived,
                "its sale is archived, so it may have been an order that was deleted since",
            ),
            _ if self.holders.contains(&buyer) => CONFLICT,
            Some(sale) if sale.left <= 0 => {
                Fate::Letter(Reason::Oversold, "its sale has no unit left to sell")
            }
            Some(sale) => {
                sale.left -= 1;
                self.holders.insert(buyer);
                self.rows.insert(order_id, buyer);
                Fate::Row
            }
        }
    }
}

/// Coupon and buyer of the rows with these order ids, in any status.
async fn rows(
    tx: &mut PgConnection,
    claims: &[LoggedClaim],
) -> sqlx::Result<HashMap<OrderId, (CouponId, UserId)>> {
    let ids: Vec<i64> = claims.iter().map(|claim| claim.order_id.get()).collect();
    let rows = sqlx::query!(
        r#"SELECT id AS "id: OrderId", coupon_id AS "coupon: CouponId", user_id AS "user: UserId"
           FROM orders WHERE id = ANY($1)"#,
        &ids,
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, (row.coupon, row.user))).collect())
}

/// Which buyers of these claims have a live order.
async fn holders(
    tx: &mut PgConnection,
    claims: &[LoggedClaim],
) -> sqlx::Result<HashSet<(CouponId, UserId)>> {
    let coupons: Vec<i64> = claims.iter().map(|claim| claim.coupon_id.get()).collect();
    let users: Vec<i64> = claims.iter().map(|claim| claim.user_id.get()).collect();
    let rows = sqlx::query!(
        r#"SELECT coupon_id AS "coupon: CouponId", orders.user_id AS "user: UserId"
           FROM UNNEST($1::bigint[], $2::bigint[]) AS claim (coupon, buyer)
           JOIN orders ON coupon_id = claim.coupon AND orders.user_id = claim.buyer
           WHERE kind = 'flash' AND is_live(status)"#,
        &coupons,
        &users,
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(|row| (row.coupon, row.user)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(order: i64, coupon: i64, user: i64) -> LoggedClaim {
        let (user, order) =
            (UserId::new(user).expect("an id"), OrderId::new(order).expect("an id"));
        LoggedClaim::without_entry(CouponId::compose(coupon, 1), user, order)
    }

    #[test]
    fn a_claim_becomes_a_row_if_nothing_speaks_against_it() {
        let sale = |left, is_archived| LockedSale { left, is_archived };
        let coupon = |number| CouponId::compose(number, 1);
        let user = |number| UserId::new(number).expect("an id");
        let mut known = Known {
            sales: [(coupon(1), sale(2, false)), (coupon(2), sale(5, true))].into(),
            rows: [(OrderId::new(10).expect("an id"), (coupon(1), user(10)))].into(),
            holders: [(coupon(1), user(10))].into(),
            letters: [(coupon(1), user(18), OrderId::new(18).expect("an id"))].into(),
            latest: claim(1 << 33, 1, 1).claimed_at,
        };
        let row = None;
        for (order, coupon, user, expected) in [
            (10, 1, 11, Some(Reason::Conflict)),
            (11, 1, 10, Some(Reason::Conflict)),
            (11, 1, 11, row),
            // These two conflict with the claim before, in the same batch.
            (11, 1, 12, Some(Reason::Conflict)),
            (12, 1, 11, Some(Reason::Conflict)),
            (13, 1, 13, row),
            (14, 1, 14, Some(Reason::Oversold)),
            (15, 2, 15, Some(Reason::Archived)),
            (16, 3, 16, Some(Reason::Invalid)),
            (3 << 32, 1, 17, Some(Reason::Invalid)),
        ] {
            let reason = match known.fate(&claim(order, coupon, user)) {
                Fate::Letter(reason, _) => Some(reason),
                fate => {
                    assert_eq!(fate, Fate::Row);
                    None
                }
            };
            assert_eq!(reason, expected, "order {order} of user {user}, coupon {coupon}");
        }
        assert_eq!(known.fate(&claim(10, 1, 10)), Fate::Repeat);
        assert_eq!(known.fate(&claim(11, 1, 11)), Fate::Repeat);
        assert_eq!(known.fate(&claim(18, 1, 18)), Fate::Repeat);
    }
}
