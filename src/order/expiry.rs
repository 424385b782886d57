//! Closes unpaid orders whose time to pay is over.
//!
//! The time to pay (`pay_by`) counts from the claim. A claim that waited in the order log during an outage still has
//! five minutes from the time its row is written (or the payment window, if that is shorter), by Postgres's clock.
//! `docs/delay.md` explains why a job scans an index, in place of a timer for each order.
//!
//! An administrator may end the time to pay of all unpaid orders of a coupon (`moves/cancel_unpaid.rs`). Those orders
//! are closed as cancelled.
//!
//! An overdue order stays unpaid, and can still be paid, until the job closes it. Whichever comes first wins
//! (`order/moves/mod.rs`).
//!
//! # What each failure does
//!
//! * Postgres refuses to close an order, for example because `sold` counts fewer orders than there are: the job splits
//!   the coupon's orders in halves until it has found the faulty ones, and postpones those (`store/postponed.rs`).
//! * Another session holds the lock of an order: the job skips the order, which is due again in the next run.
//! * Another session holds the lock of a sale's row: a statement times out once in each run. An alarm names the
//!   session, and the run skips that sale.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use crate::base::limits;
use crate::base::telemetry::LogThrottle;
use crate::coupon::stock;
use crate::order::moves::{self, OrderMoves};
use crate::store::Failure;
use crate::store::ids::{CouponId, OrderId};
use crate::store::job::{Job, Ran};
use crate::store::postgres;
use crate::store::postponed::Postponed;

pub struct Expiry {
    moves: OrderMoves,
    postponed: Postponed,
    /// Each run finds a locked sale again; an operator needs one line.
    throttle: Mutex<LogThrottle>,
}

impl Expiry {
    pub fn new(moves: OrderMoves, postponed: Postponed) -> Self {
        Self { moves, postponed, throttle: Mutex::default() }
    }

    /// Retries postponed orders that are due, then closes overdue orders, oldest first, in up to
    /// [`limits::JOB_BATCHES_MAX`] batches.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer; the batches before stay closed.
    pub async fn run_once(&self) -> Result<Ran, Failure> {
        let mut ran = Ran { items: 0, goes_on: true };
        let mut tries = self.postponed.begin(Job::Expiry).await?;
        for item in tries.due() {
            let order: Vec<OrderId> = OrderId::new(item).into_iter().collect();
            let tried = moves::close(self.moves.pool(), &order).await.map_err(Failure::from);
            ran.items += tries.settle(item, tried).await?.unwrap_or(0);
        }
        let mut locked = BTreeSet::new();
        for _ in 0..limits::JOB_BATCHES_MAX {
            let due = self.due(&locked).await?;
            ran.goes_on =
                due.values().map(Vec::len).sum::<usize>() >= limits::EXPIRY_BATCH as usize;
            for (coupon, orders) in due {
                match self.close_of(coupon, orders).await? {
                    Some(closed) => ran.items += closed,
                    None => _ = locked.insert(coupon),
                }
            }
            if !ran.goes_on {
                break;
            }
        }
        // Locked orders and sales stay due, so a run that closed nothing must not repeat without a pause.
        ran.goes_on &= ran.items > 0;
        Ok(ran)
    }

    /// The next overdue orders, oldest first, by coupon; without postponed orders and without the coupons in `but`.
    async fn due(
        &self,
        but: &BTreeSet<CouponId>,
    ) -> sqlx::Result<BTreeMap<CouponId, Vec<OrderId>>> {
        let but: Vec<i64> = but.iter().map(|coupon| coupon.get()).collect();
        let mut tx = postgres::begin_by_index(self.moves.pool()).await?;
        let rows = sqlx::query!(
            r#"SELECT id AS "order: OrderId", coupon_id AS "coupon: CouponId" FROM orders
               WHERE status = 'unpaid' AND pay_by < now() AND coupon_id <> ALL($2)
                 AND NOT EXISTS (SELECT FROM postponed WHERE job = 'expiry' AND item = orders.id)
               ORDER BY pay_by LIMIT $1 FOR UPDATE SKIP LOCKED"#,
            i64::from(limits::EXPIRY_BATCH),
            &but,
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.rollback().await?;
        let mut by_coupon: BTreeMap<CouponId, Vec<OrderId>> = BTreeMap::new();
        for row in rows {
            by_coupon.entry(row.coupon).or_default().push(row.order);
        }
        Ok(by_coupon)
    }

    /// Closes orders of one coupon, and postpones those that Postgres refuses to close. Returns the number closed;
    /// `None` if another session holds the lock of the sale's row.
    async fn close_of(
        &self,
        coupon: CouponId,
        orders: Vec<OrderId>,
    ) -> Result<Option<usize>, Failure> {
        let pool = self.moves.pool();
        let mut closed = 0;
        let mut parts = vec![orders];
        while let Some(part) = parts.pop() {
            let failure = match moves::close(pool, &part).await.map_err(Failure::from) {
                Ok(now) => {
                    closed += now;
                    continue;
                }
                Err(failure) => failure,
            };
            if failure.is_of_lock()
                && let Some(session) = stock::lock_holder(pool, coupon).await?
            {
                if self.throttle.lock().is_ok_and(|mut throttle| throttle.allows()) {
                    tracing::error!(%coupon, session, "ALARM: another session keeps the row of a sale locked in Postgres; its unpaid orders can't be closed, and all others go on (docs/operate.md)");
                }
                return Ok(None);
            }
            if !failure.is_of_item() {
                return Err(failure);
            }
            if let [order] = part[..] {
                self.postponed.note(Job::Expiry, &[order.get()], &failure.to_string()).await?;
                continue;
            }
            let (first, second) = part.split_at(part.len() / 2);
            parts.extend([second, first].map(<[_]>::to_vec));
        }
        Ok(Some(closed))
    }
}
