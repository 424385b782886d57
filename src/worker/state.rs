//! State of a lane's worker, shared by its batches.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::open_entries::OpenEntries;
use crate::base::limits;
use crate::log::{EntryId, LoggedClaim};
use crate::store::ids::CouponId;

pub(super) struct State {
    /// Epoch of the lane in which the open entries were read.
    pub epoch: i64,
    /// Entries that have been read and aren't finished.
    pub open: OpenEntries,
    /// Entry after which the next read of pending entries starts; `None` once all of them are open here.
    pub pending_from: Option<EntryId>,
    /// The order that was acknowledged last, and its coupon, as of the last read: Postgres has to have it.
    pub last: Option<(i64, i64)>,
    pub read_at: Instant,
    /// Contended claims aren't tried before this time: a lock that was just held is still held.
    pub contended_not_before: Instant,
    /// Size of the next batch, in claims: halved when Postgres fails (the batch may be too large for its time limit),
    /// doubled up to the setting when Postgres succeeds.
    pub batch_orders: usize,
    /// Sales whose rows another session held locked at the last try. Their claims wait.
    pub locked: BTreeSet<CouponId>,
    /// Whether entries have been written since the log was trimmed.
    pub untidied: bool,
}

impl State {
    pub fn new(batch_orders: usize) -> Self {
        Self {
            epoch: 0,
            open: OpenEntries::default(),
            pending_from: Some(EntryId::default()),
            last: None,
            read_at: Instant::now(),
            contended_not_before: Instant::now(),
            batch_orders,
            locked: BTreeSet::new(),
            untidied: true,
        }
    }

    /// Notes the lane's epoch. Entries read in another epoch are read again, since Redis may have other entries now.
    pub fn learn_epoch(&mut self, epoch: i64) {
        if epoch != self.epoch {
            *self = Self { epoch, ..Self::new(self.batch_orders) };
        }
    }

    /// Adds contended claims to those that wait for a batch, once their pause is over.
    pub fn retry_contended(&mut self) {
        if Instant::now() >= self.contended_not_before {
            self.open.retry_contended();
        }
    }

    /// Starts the pause of contended claims, unless one is under way: newly contended claims don't delay earlier ones.
    pub fn let_contended_wait(&mut self, pause: Duration) {
        if Instant::now() >= self.contended_not_before {
            self.contended_not_before = Instant::now() + pause;
        }
    }

    /// Sets claims on locked sales aside until their next try. Returns how many.
    pub fn leave_locked(&mut self, claims: &mut Vec<LoggedClaim>) -> usize {
        if Instant::now() >= self.contended_not_before {
            return 0;
        }
        let locked = extract(claims, &self.locked);
        let number = locked.len();
        self.open.contend(locked);
        number
    }

    /// Notes that a sale's row is locked. False if that was known.
    pub fn note_locked(&mut self, coupon: CouponId) -> bool {
        self.contended_not_before = Instant::now() + limits::LOCKED_SALES_PAUSE;
        self.locked.insert(coupon)
    }

    /// Notes that claims have been written, so their sales aren't locked.
    pub fn note_written(&mut self, claims: &[LoggedClaim]) {
        if !self.locked.is_empty() {
            self.locked.retain(|coupon| claims.iter().all(|claim| claim.coupon_id != *coupon));
        }
    }

    /// Adapts the size of the next batch to the result of this one.
    pub fn adapt_batch(&mut self, written: bool, most: usize) {
        let batch = if written { self.batch_orders * 2 } else { self.batch_orders / 2 };
        self.batch_orders = batch.clamp(1, most);
    }
}

/// Removes the claims on these sales from `claims`, and returns them.
pub fn extract(claims: &mut Vec<LoggedClaim>, sales: &BTreeSet<CouponId>) -> Vec<LoggedClaim> {
    claims.extract_if(.., |claim| sales.contains(&claim.coupon_id)).collect()
}
