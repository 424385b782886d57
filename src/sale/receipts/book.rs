//! Receipts of this process, in memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use tokio::time::Instant;

use crate::sale::ids::{CouponId, Lane, OrderId, UserId};

/// A claim that this process has promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The coupon.
    pub coupon: CouponId,
    /// The buyer.
    pub user: UserId,
    /// Order id that the buyer was told.
    pub order: OrderId,
}

impl Receipt {
    /// Coupon, buyer and order.
    pub fn claim(&self) -> (CouponId, UserId, OrderId) {
        (self.coupon, self.user, self.order)
    }
}

/// The receipts, by lane.
pub struct ReceiptBook {
    lanes: Mutex<BTreeMap<Lane, Page>>,
    /// Receipts that a lane may have; older ones are dropped for newer ones.
    receipts_max: usize,
}

/// Receipts of a lane.
#[derive(Default)]
struct Page {
    /// In the order of their times.
    receipts: VecDeque<(Instant, Receipt)>,
    /// Receipts that were dropped for newer ones.
    dropped: u64,
    /// Those of them that no look has found to be committed yet, and the time at which the newest was noted.
    missing: u64,
    missing_until: Option<Instant>,
}

impl ReceiptBook {
    /// An empty book.
    pub fn new(receipts_max: usize) -> Self {
        Self { lanes: Mutex::default(), receipts_max }
    }

    /// Notes promises.
    pub fn note(&self, lane: Lane, promised: impl Iterator<Item = Receipt>) {
        let now = Instant::now();
        let mut lanes = self.lock();
        let page = lanes.entry(lane).or_default();
        page.receipts.extend(promised.map(|receipt| (now, receipt)));
        let over = page.receipts.len().saturating_sub(self.receipts_max);
        if let Some((noted_at, _)) = page.receipts.drain(..over).next_back() {
            page.missing_until = Some(noted_at);
        }
        page.dropped += over as u64;
        page.missing += over as u64;
    }

    /// The lanes with receipts.
    pub fn lanes(&self) -> Vec<Lane> {
        let lanes = self.lock();
        lanes.iter().filter(|(_, page)| !page.receipts.is_empty()).map(|(lane, _)| *lane).collect()
    }

    /// The receipts of a lane.
    pub fn of(&self, lane: Lane) -> Vec<Receipt> {
        let lanes = self.lock();
        let page = lanes.get(&lane);
        page.into_iter().flat_map(|page| &page.receipts).map(|(_, receipt)| *receipt).collect()
    }

    /// Drops the receipts of a lane that were noted before `looked_at`: they are committed.
    pub fn committed(&self, lane: Lane, looked_at: Instant) {
        let mut lanes = self.lock();
        let Some(page) = lanes.get_mut(&lane) else { return };
        let committed = page.receipts.partition_point(|(noted_at, _)| *noted_at < looked_at);
        page.receipts.drain(..committed);
        if page.missing_until.is_some_and(|noted_at| noted_at < looked_at) {
            page.missing = 0;
        }
    }

    /// Receipts of a lane that were dropped for newer ones, and are not known to be committed: they can't be handed in.
    pub fn missing(&self, lane: Lane) -> u64 {
        self.lock().get(&lane).map_or(0, |page| page.missing)
    }

    /// Receipts that were dropped for newer ones, over all lanes.
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

    fn receipt(n: i64) -> Receipt {
        Receipt {
            coupon: CouponId::compose(1, 1),
            user: UserId::new(n).expect("an id"),
            order: OrderId::new(1_000 + n).expect("an id"),
        }
    }

    fn lane() -> Lane {
        Lane::numbered(0)
    }

    fn users(book: &ReceiptBook) -> Vec<i64> {
        book.of(lane()).iter().map(|receipt| receipt.user.get()).collect()
    }

    #[test]
    fn a_full_book_drops_the_oldest_and_counts_them() {
        let book = ReceiptBook::new(2);
        book.note(lane(), (1..=3).map(receipt));
        assert_eq!((users(&book), book.dropped()), (vec![2, 3], 1));
    }

    #[test]
    fn lanes_are_those_with_receipts() {
        let book = ReceiptBook::new(2);
        assert_eq!(book.lanes(), []);
        book.note(Lane::numbered(3), [receipt(1)].into_iter());
        book.note(Lane::numbered(1), [receipt(2)].into_iter());
        book.note(Lane::numbered(2), std::iter::empty());
        assert_eq!(book.lanes(), [1, 3].map(Lane::numbered));
        let none = Lane::numbered(7);
        assert_eq!((book.missing(none), book.of(none), book.dropped()), (0, Vec::new(), 0));
        book.note(Lane::numbered(1), (3..=5).map(receipt));
        assert_eq!((book.missing(Lane::numbered(1)), book.missing(Lane::numbered(3))), (2, 0));
        assert_eq!(book.dropped(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_proves_what_was_noted_before_it_and_not_at_its_moment() {
        bound_this_test();
        let book = ReceiptBook::new(1);
        book.note(lane(), (1..=2).map(receipt));
        let noted_at = Instant::now();
        book.committed(lane(), noted_at);
        assert_eq!((book.missing(lane()), users(&book)), (1, vec![2]));
        advance(std::time::Duration::from_millis(1)).await;
        book.committed(lane(), Instant::now());
        assert_eq!((book.missing(lane()), users(&book)), (0, vec![]));
        assert_eq!((book.lanes(), book.dropped()), (vec![], 1));
    }
}
