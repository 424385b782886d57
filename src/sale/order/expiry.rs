//! Unpaid orders whose time to be paid is over.
//!
//! The time (`pay_by`) counts from the claim. A claim that has waited in the order log during an outage has at least
//! five minutes from its row on, by Postgres's clock. `docs/delay.md` says why a pass over an index and not a timer for
//! each order.
//!
//! The staff may end the time of all unpaid orders of a coupon (`moves/cancel_unpaid.rs`): these are closed as cancelled.
//!
//! An order whose time is over stays unpaid until the pass closes it, and may still be paid until then. The first of
//! the two wins (`sale/order/moves/mod.rs`).
//!
//! # An order that can't be closed
//!
//! Orders are closed in batches. A batch that Postgres refuses is closed coupon by coupon, and its culprits are
//! postponed (`sale/order/moves/in_parts.rs`); the others are closed in the same pass.
//!
//! # A sale that another session keeps locked
//!
//! A batch with an order of it waits in vain for the row of the sale. The pass leaves out all orders of the sale then, as
//! long as its row is locked: a look tells that without a wait. Its first order is postponed, so that operators see it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use crate::base::limits;
use crate::sale::Failure;
use crate::sale::coupon::stock;
use crate::sale::ids::{CouponId, OrderId};
use crate::sale::order::moves::OrderMoves;
use crate::sale::pass::{Pass, Ran};
use crate::sale::postponed::Postponed;

/// Expires orders.
pub struct Expiry {
    moves: OrderMoves,
    postponed: Postponed,
    /// Sales whose rows another session kept locked, at the last look.
    locked: Mutex<BTreeSet<CouponId>>,
}

/// Result of one batch.
struct Batch {
    /// Orders closed.
    closed: usize,
    /// Whether more orders may be due.
    is_full: bool,
}

impl Expiry {
    /// Expiry of these orders.
    pub fn new(moves: OrderMoves, postponed: Postponed) -> Self {
        Self { moves, postponed, locked: Mutex::default() }
    }

    /// Closes due orders, oldest first, up to [`limits::PASS_BATCHES_MAX`] batches; then tries postponed ones again that
    /// are due.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer; batches before that are closed.
    pub async fn pass(&self) -> Result<Ran, Failure> {
        let locked = stock::locked_among(self.moves.pool(), self.locked()).await?;
        self.set_locked(locked);
        let mut ran = Ran { items: 0, goes_on: true };
        for _ in 0..limits::PASS_BATCHES_MAX {
            let batch = self.batch().await?;
            ran.items += batch.closed;
            ran.goes_on = batch.is_full;
            if !batch.is_full {
                break;
            }
        }
        let mut tries = self.postponed.begin(Pass::Expiry).await?;
        for item in tries.due() {
            let tried = match OrderId::new(item) {
                Ok(order) => {
                    let closed = self.moves.close_these(&[order]).await;
                    closed.map_err(Failure::from)
                }
                Err(_) => Ok(0),
            };
            ran.items += tries.settle(item, tried).await?.unwrap_or(0);
        }
        Ok(ran)
    }

    async fn batch(&self) -> Result<Batch, Failure> {
        let limit = limits::EXPIRY_BATCH as usize;
        match self.moves.expire(&self.locked(), limits::EXPIRY_BATCH).await.map_err(Failure::from) {
            // Locked orders are skipped, so a longer batch may follow a short one: in the next pass.
            Ok(closed) => Ok(Batch { closed, is_full: closed >= limit }),
            Err(failure) if failure.is_of_lock() && self.leaves_out_locked(&failure).await? => {
                Ok(Batch { closed: 0, is_full: true })
            }
            Err(failure) if self.postponed.is_of_item(&failure).await? => {
                self.batch_by_coupon().await
            }
            Err(failure) => Err(failure),
        }
    }

    /// Closes a batch of which Postgres has refused a part.
    async fn batch_by_coupon(&self) -> Result<Batch, Failure> {
        let due = self.due().await?;
        let is_full = due.values().map(Vec::len).sum::<usize>() >= limits::EXPIRY_BATCH as usize;
        let mut closed = 0;
        for (coupon, orders) in due {
            match self.moves.close_what_can_be(&self.postponed, coupon, &orders).await {
                Ok(now) => closed += now,
                Err(failure)
                    if failure.is_of_lock() && self.leaves_out_locked(&failure).await? => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(Batch { closed, is_full })
    }

    /// The orders of the next batch, oldest first, by coupon.
    async fn due(&self) -> sqlx::Result<BTreeMap<CouponId, Vec<OrderId>>> {
        let limit = limits::EXPIRY_BATCH;
        let mut by_coupon: BTreeMap<CouponId, Vec<OrderId>> = BTreeMap::new();
        for (order, coupon) in self.moves.due(&self.locked(), limit).await? {
            by_coupon.entry(coupon).or_default().push(order);
        }
        Ok(by_coupon)
    }

    /// Leaves out the sales of the next batch that are locked, from now on, and postpones the first order of each.
    /// Returns whether there are any.
    async fn leaves_out_locked(&self, failure: &Failure) -> Result<bool, Failure> {
        let due = self.due().await?;
        let found = stock::locked_among(self.moves.pool(), due.keys().copied()).await?;
        let first = found.iter().filter_map(|coupon| due.get(coupon)?.first());
        let items: Vec<i64> = first.map(|order| order.get()).collect();
        if items.is_empty() {
            return Ok(false);
        }
        self.postponed.note(Pass::Expiry, &items, &failure.to_string()).await?;
        self.set_locked(&self.locked() | &found);
        Ok(true)
    }

    fn locked(&self) -> BTreeSet<CouponId> {
        self.locked.lock().expect("no holder of this lock panics").clone()
    }

    fn set_locked(&self, sales: BTreeSet<CouponId>) {
        *self.locked.lock().expect("no holder of this lock panics") = sales;
    }
}
