//! Unpaid orders whose time to be paid is over.
//!
//! The time (`pay_by`) counts from the claim. A claim that has waited in the order log during an outage has at least
//! five minutes from its row on, by Postgres's clock. `docs/delay.md` says why a pass over an index and not a timer for
//! each order.
//!
//! The staff may end the time of all unpaid orders of a coupon (`moves/cancel_unpaid.rs`): these are closed as cancelled.
//!
//! An order whose time is over stays unpaid until the pass closes it, and may still be paid until then. The first of
//! the two wins (`order/moves/mod.rs`).
//!
//! # What each failure does
//!
//! * Postgres refuses to close an order (its sale counts fewer orders as sold than there are, say): the orders of the coupon
//!   are halved until the culprits stand alone, and these are postponed (`store/postponed.rs`).
//! * Another session keeps an order locked: the order is skipped, and is due again in the next run.
//! * Another session keeps the row of a sale locked: a statement waits for it in vain, once in each run. An alarm names the
//!   session, and the run leaves out that sale.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use crate::base::limits;
use crate::base::telemetry::LogThrottle;
use crate::coupon::stock;
use crate::order::moves::{self, OrderMoves};
use crate::store::Failure;
use crate::store::ids::{CouponId, OrderId};
use crate::store::pass::{Pass, Ran};
use crate::store::postgres;
use crate::store::postponed::Postponed;

/// Expires orders.
pub struct Expiry {
    moves: OrderMoves,
    postponed: Postponed,
    /// Each run finds a locked sale anew; an operator needs one line.
    throttle: Mutex<LogThrottle>,
}

impl Expiry {
    /// Expiry of these orders.
    pub fn new(moves: OrderMoves, postponed: Postponed) -> Self {
        Self { moves, postponed, throttle: Mutex::default() }
    }

    /// Tries postponed orders again that are due; then closes due orders, oldest first, up to
    /// [`limits::PASS_BATCHES_MAX`] batches.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer; batches before that are closed.
    pub async fn pass(&self) -> Result<Ran, Failure> {
        let mut ran = Ran { items: 0, goes_on: true };
        let mut tries = self.postponed.begin(Pass::Expiry).await?;
        for item in tries.due() {
            let order: Vec<OrderId> = OrderId::new(item).into_iter().collect();
            let tried = moves::close(self.moves.pool(), &order).await.map_err(Failure::from);
            ran.items += tries.settle(item, tried).await?.unwrap_or(0);
        }
        let mut locked = BTreeSet::new();
        for _ in 0..limits::PASS_BATCHES_MAX {
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
        // Locked orders and sales are due all the time.
        ran.goes_on &= ran.items > 0;
        Ok(ran)
    }

    /// The next orders that are due, oldest first, by coupon; without postponed ones, and those of the coupons in `but`.
    async fn due(
        &self,
        but: &BTreeSet<CouponId>,
    ) -> sqlx::Result<BTreeMap<CouponId, Vec<OrderId>>> {
        let but: Vec<i64> = but.iter().map(|coupon| coupon.get()).collect();
        let mut tx = postgres::begin_by_index(self.moves.pool()).await?;
        let rows = sqlx::query!(
            r#"SELECT id AS "order: OrderId", coupon_id AS "coupon: CouponId" FROM orders
               WHERE status = 'unpaid' AND pay_by < now() AND coupon_id <> ALL($2)
                 AND NOT EXISTS (SELECT FROM postponed WHERE pass = 'expiry' AND item = orders.id)
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

    /// Closes orders of one coupon, and postpones those that Postgres refuses to close. Returns the number closed; `None` if
    /// another session keeps the row of the sale locked.
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
                self.postponed.note(Pass::Expiry, &[order.get()], &failure.to_string()).await?;
                continue;
            }
            let (first, second) = part.split_at(part.len() / 2);
            parts.extend([second, first].map(<[_]>::to_vec));
        }
        Ok(Some(closed))
    }
}
