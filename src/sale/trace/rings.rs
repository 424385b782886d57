//! Rings of notes: a newer note takes the place of the oldest.

use std::collections::VecDeque;
use std::sync::Arc;

use super::notes::{TracedBatch, TracedClaim};
use crate::base::limits;
use crate::sale::ids::{CouponId, OrderId};
use crate::sale::log::EntryId;

/// The last claims that were measured.
#[derive(Default)]
pub(super) struct Claims(VecDeque<TracedClaim>);

impl Claims {
    pub fn push(&mut self, claim: TracedClaim) {
        if self.0.len() == limits::TRACED_CLAIMS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(claim);
    }

    pub fn find(&self, order: OrderId) -> Option<TracedClaim> {
        self.0.iter().rev().find(|claim| claim.order == order).copied()
    }

    /// Order of the newest one on this coupon.
    pub fn newest_of(&self, coupon: CouponId) -> Option<OrderId> {
        self.0.iter().rev().find(|claim| claim.coupon == coupon).map(|claim| claim.order)
    }
}

/// The last batches that were written.
#[derive(Default)]
pub(super) struct Batches {
    batches: VecDeque<Arc<TracedBatch>>,
    /// Places of claims and entries that all of them have together.
    places: usize,
}

impl Batches {
    pub fn push(&mut self, batch: Arc<TracedBatch>) {
        self.places += places(&batch);
        self.batches.push_back(batch);
        while self.batches.len() > limits::TRACED_BATCHES_MAX
            || self.places > limits::TRACED_PLACES_MAX
        {
            let oldest = self.batches.pop_front();
            self.places -= oldest.map_or(self.places, |batch| places(&batch));
        }
    }

    /// The batch that has last written this order, and the order's entry.
    pub fn of_order(&self, order: OrderId) -> Option<(&Arc<TracedBatch>, EntryId)> {
        self.batches.iter().rev().find_map(|batch| {
            let (_, entry) = batch.claims.iter().find(|(written, _)| *written == order)?;
            Some((batch, *entry))
        })
    }

    /// The batch with which the last position of this entry was finished.
    pub fn that_acknowledged(&self, entry: EntryId) -> Option<&Arc<TracedBatch>> {
        self.batches.iter().rev().find(|batch| batch.acknowledged.1.contains(&entry))
    }
}

fn places(batch: &TracedBatch) -> usize {
    batch.claims.len() + batch.acknowledged.1.len()
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::super::probe::Call;
    use super::*;
    use crate::sale::ids::UserId;

    fn order(number: usize) -> OrderId {
        OrderId::new(i64::try_from(number).unwrap()).unwrap()
    }

    fn entry(number: usize) -> EntryId {
        EntryId { ms: number as u64, sequence: 0 }
    }

    fn claim(number: usize) -> TracedClaim {
        let now = Instant::now();
        let call = Call {
            queued_at: now,
            called_at: now,
            answered_at: now,
            claims: 1,
            accepted: Some(order(number)),
        };
        let user = UserId::new(1).unwrap();
        let coupon = CouponId::compose(1, 1);
        TracedClaim { order: order(number), coupon, user, call, told_at: now }
    }

    /// A batch of these orders, each the only claim of an entry with its number.
    fn batch(orders: impl Iterator<Item = usize> + Clone) -> Arc<TracedBatch> {
        let now = Instant::now();
        Arc::new(TracedBatch {
            worker: "w".to_owned(),
            read_at: now,
            taken_at: now,
            locked_at: now,
            committed_at: now,
            acknowledged: (now, orders.clone().map(entry).collect()),
            claims: orders.map(|number| (order(number), entry(number))).collect(),
        })
    }

    #[test]
    fn the_ring_of_claims_keeps_the_newest() {
        let mut claims = Claims::default();
        let last = 2 * limits::TRACED_CLAIMS_MAX;
        for number in 1..=last {
            claims.push(claim(number));
        }
        assert_eq!(claims.0.len(), limits::TRACED_CLAIMS_MAX);
        assert!(claims.find(order(last)).is_some());
        assert!(claims.find(order(last - limits::TRACED_CLAIMS_MAX)).is_none());
        assert!(claims.find(order(last - limits::TRACED_CLAIMS_MAX + 1)).is_some());
        assert_eq!(claims.newest_of(CouponId::compose(1, 1)), Some(order(last)));
        assert_eq!(claims.newest_of(CouponId::compose(2, 1)), None);
    }

    #[test]
    fn the_ring_of_batches_keeps_the_newest() {
        let mut batches = Batches::default();
        let last = limits::TRACED_BATCHES_MAX + 1;
        for number in 1..=last {
            batches.push(batch(number..=number));
        }
        assert_eq!(batches.batches.len(), limits::TRACED_BATCHES_MAX);
        assert!(
            batches.of_order(order(1)).is_none() && batches.that_acknowledged(entry(1)).is_none()
        );
        let (_, of) = batches.of_order(order(last)).expect("the newest");
        assert_eq!(of, entry(last));
        assert!(batches.that_acknowledged(of).is_some());
    }

    #[test]
    fn large_batches_push_more_than_one_out() {
        const LARGE: usize = limits::BATCH_ORDERS_LIMIT as usize;
        let mut batches = Batches::default();
        for number in 0..10 {
            batches.push(batch(number * LARGE + 1..=(number + 1) * LARGE));
            assert!(batches.places <= limits::TRACED_PLACES_MAX);
            let counted: usize = batches.batches.iter().map(|batch| places(batch)).sum();
            assert_eq!(batches.places, counted);
        }
        assert!(!batches.batches.is_empty(), "the largest batch fits");
        assert!(batches.of_order(order(10 * LARGE)).is_some());
        assert!(batches.of_order(order(1)).is_none());
    }

    #[test]
    fn batches_keep_as_many_places_as_there_are() {
        const QUARTER: usize = limits::TRACED_PLACES_MAX / 4;
        let mut batches = Batches::default();
        // A claim and its entry have a place each.
        batches.push(batch(1..=QUARTER));
        batches.push(batch(QUARTER + 1..=2 * QUARTER));
        assert_eq!((batches.places, batches.batches.len()), (limits::TRACED_PLACES_MAX, 2));
        // One more: a claim whose entry isn't finished.
        let last = 2 * QUARTER + 1;
        let unfinished = TracedBatch {
            acknowledged: (Instant::now(), Vec::new()),
            ..(*batch(last..=last)).clone()
        };
        batches.push(Arc::new(unfinished));
        assert_eq!((batches.places, batches.batches.len()), (2 * QUARTER + 1, 2));
        for (number, is_there) in [(1, false), (QUARTER, false), (QUARTER + 1, true), (last, true)]
        {
            assert_eq!(batches.of_order(order(number)).is_some(), is_there, "order {number}");
        }
        assert!(batches.that_acknowledged(entry(last)).is_none());
        assert!(batches.that_acknowledged(entry(QUARTER + 1)).is_some());
    }
}
