//! Notes of the worker of a lane, which its batches share.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::open_entries::OpenEntries;
use crate::base::limits;
use crate::log::{EntryId, LoggedClaim};
use crate::store::ids::CouponId;

/// The notes.
pub(super) struct State {
    /// Epoch of the lane in which the open entries were read.
    pub epoch: i64,
    /// Entries that have been read, and aren't finished.
    pub open: OpenEntries,
    /// Entry behind which the next read of the pending entries begins; `None` when all of them are open here.
    pub pending_from: Option<EntryId>,
    /// The order that was acknowledged last, and its coupon, as of the last read: Postgres has to have it.
    pub last: Option<(i64, i64)>,
    /// Time at which entries were last read.
    pub read_at: Instant,
    /// Time before which contended claims are not tried: a lock that was just held is still held.
    pub contended_not_before: Instant,
    /// Size of the next batch, in claims: halved when Postgres fails (a batch may be more than Postgres can write
    /// within its time limit), doubled up to the setting when Postgres succeeds.
    pub batch_orders: usize,
    /// Sales whose rows another session kept locked in Postgres at the last try: their claims wait.
    pub locked: BTreeSet<CouponId>,
    /// Whether entries have been written since the log was trimmed.
    pub untidied: bool,
}

impl State {
    /// Nothing has been read yet.
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

    /// Learns the epoch of the lane. Entries that were read in another one are read again: Redis may have others now.
    pub fn learn_epoch(&mut self, epoch: i64) {
        if epoch != self.epoch {
            *self = Self { epoch, ..Self::new(self.batch_orders) };
        }
    }

    /// Lets contended claims wait for the next batch, once their pause is over.
    pub fn retry_contended(&mut self) {
        if Instant::now() >= self.contended_not_before {
            self.open.retry_contended();
        }
    }

    /// Claims that were contended before don't wait for those that are found to be now.
    pub fn let_contended_wait(&mut self, pause: Duration) {
        if Instant::now() >= self.contended_not_before {
            self.contended_not_before = Instant::now() + pause;
        }
    }

    /// Puts the claims on locked sales aside until their next try. Returns their number.
    pub fn leave_locked(&mut self, claims: &mut Vec<LoggedClaim>) -> usize {
        if Instant::now() >= self.contended_not_before {
            return 0;
        }
        let locked = extract(claims, &self.locked);
        let number = locked.len();
        self.open.contend(locked);
        number
    }

    /// Notes a locked sale. False if it was known.
    pub fn note_locked(&mut self, coupon: CouponId) -> bool {
        self.contended_not_before = Instant::now() + limits::LOCKED_SALES_PAUSE;
        self.locked.insert(coupon)
    }

    /// Notes that claims are written: their sales aren't locked.
    pub fn note_written(&mut self, claims: &[LoggedClaim]) {
        if !self.locked.is_empty() {
            self.locked.retain(|coupon| claims.iter().all(|claim| claim.coupon_id != *coupon));
        }
    }

    /// Adapts the next batch to the result of this one.
    pub fn adapt_batch(&mut self, written: bool, most: usize) {
        let batch = if written { self.batch_orders * 2 } else { self.batch_orders / 2 };
        self.batch_orders = batch.clamp(1, most);
    }
}

/// Takes the claims on these sales out of others.
pub fn extract(claims: &mut Vec<LoggedClaim>, sales: &BTreeSet<CouponId>) -> Vec<LoggedClaim> {
    claims.extract_if(.., |claim| sales.contains(&claim.coupon_id)).collect()
}
