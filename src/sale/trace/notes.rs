//! Notes about claims that were measured, and about written batches.

use tokio::time::Instant;

use super::probe::Call;
use crate::sale::ids::{CouponId, OrderId, UserId};
use crate::sale::log::EntryId;

/// A claim that was accepted and measured.
#[derive(Clone, Copy, Debug)]
pub struct TracedClaim {
    /// Its order.
    pub order: OrderId,
    /// The claimed coupon.
    pub coupon: CouponId,
    /// Its user, who may follow it.
    pub user: UserId,
    /// The call of the script.
    pub call: Call,
    /// Time at which the reply to the client was made.
    pub told_at: Instant,
}

/// A batch that a worker of this process has written: at its last try, if it was tried more than once.
#[derive(Clone, Debug)]
pub struct TracedBatch {
    /// Process id of the worker.
    pub worker: String,
    /// Time of the last read of entries before the batch.
    pub read_at: Instant,
    /// Time at which its claims were taken.
    pub taken_at: Instant,
    /// Time at which the locks of its buyers were held.
    pub locked_at: Instant,
    /// Time at which its transaction was committed.
    pub committed_at: Instant,
    /// Time at which its finished entries were acknowledged, and these entries.
    pub acknowledged: (Instant, Vec<EntryId>),
    /// Claims of which the worker has made the rows, each with its entry.
    pub claims: Vec<(OrderId, EntryId)>,
}
