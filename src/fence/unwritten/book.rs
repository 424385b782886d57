//! Unwritten claims of this process, in memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use tokio::time::Instant;

use crate::store::ids::{CouponId, Lane, OrderId, UserId};

/// A claim that this process has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwrittenClaim {
    pub coupon: CouponId,
    pub user: UserId,
    /// The order id that the buyer was told.
    pub order: OrderId,
}

pub struct UnwrittenBook {
    lanes: Mutex<BTreeMap<Lane, Page>>,
    /// Unwritten claims that a lane may have; beyond it, the oldest are dropped.
    unwritten_max: usize,
}

#[derive(Default)]
struct Page {
    /// Oldest first.
    unwritten: VecDeque<(Instant, UnwrittenClaim)>,
    /// Unwritten claims that were dropped for newer ones.
    dropped: u64,
}

impl UnwrittenBook {
    pub fn new(unwritten_max: usize) -> Self {
        Self { lanes: Mutex::default(), unwritten_max }
    }

    /// Notes orders that users are about to be told.
    pub fn note(&self, coupon: CouponId, told: impl Iterator<Item = (UserId, OrderId)>) {
        let mut told = told.peekable();
        if told.peek().is_none() {
            return;
        }
        let mut lanes = self.lock();
        // Under the lock, so that the times are in order.
        let now = Instant::now();
        let page = lanes.entry(coupon.lane()).or_default();
        page.unwritten
            .extend(told.map(|(user, order)| (now, UnwrittenClaim { coupon, user, order })));
        let over = page.unwritten.len().saturating_sub(self.unwritten_max);
        page.unwritten.drain(..over);
        page.dropped += over as u64;
    }

    /// The lanes with unwritten claims.
    pub fn lanes(&self) -> Vec<Lane> {
        let lanes = self.lock();
        lanes.iter().filter(|(_, page)| !page.unwritten.is_empty()).map(|(lane, _)| *lane).collect()
    }

    pub fn of(&self, lane: Lane) -> Vec<UnwrittenClaim> {
        let lanes = self.lock();
        let page = lanes.get(&lane);
        page.into_iter().flat_map(|page| &page.unwritten).map(|(_, claim)| *claim).collect()
    }

    /// Drops the unwritten claims of a lane from before `checked_at`: all entries that the log had at that time are
    /// acknowledged.
    pub fn committed(&self, lane: Lane, checked_at: Instant) {
        let mut lanes = self.lock();
        let Some(page) = lanes.get_mut(&lane) else { return };
        let committed = page.unwritten.partition_point(|(noted_at, _)| *noted_at < checked_at);
        page.unwritten.drain(..committed);
    }

    /// Unwritten claims that were dropped for newer ones, over all lanes.
    pub fn dropped(&self) -> u64 {
        self.lock().values().map(|page| page.dropped).sum()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Lane, Page>> {
        self.lanes.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;
    use tokio::time::advance;

    use super::*;

    fn told(n: i64) -> (UserId, OrderId) {
        (UserId::new(n).expect("an id"), OrderId::new(1_000 + n).expect("an id"))
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_are_dropped_and_a_check_proves_what_was_noted_before_it() {
        bound_this_test();
        let coupon = CouponId::compose(1, 1);
        let lane = coupon.lane();
        let book = UnwrittenBook::new(2);
        let users = || book.of(lane).iter().map(|claim| claim.user.get()).collect::<Vec<_>>();
        assert_eq!(book.lanes(), []);
        book.note(coupon, (1..=3).map(told));
        assert_eq!((users(), book.dropped(), book.lanes()), (vec![2, 3], 1, vec![lane]));
        book.committed(lane, Instant::now());
        assert_eq!(users(), [2, 3], "they may have been noted after the check");
        advance(std::time::Duration::from_millis(1)).await;
        book.committed(lane, Instant::now());
        assert_eq!((users(), book.lanes()), (vec![], vec![]));
    }
}
