//! The approved states of the lanes, as this process knows them.
//!
//! The claim path reads them from memory. The process reads them from Postgres once a second, and at once when a script
//! replies that they have changed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use moka::future::Cache;
use sqlx::PgPool;

use super::table::{self, StoredLane};
use crate::base::limits;
use crate::store::Failure;
use crate::store::ids::{CouponId, Lane};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneState {
    /// The epoch to pass to the scripts.
    pub epoch: i64,
    pub is_open: bool,
}

pub struct LaneStates {
    pool: PgPool,
    /// Indexed by the number of the lane.
    known: ArcSwap<Vec<LaneState>>,
    /// Merges concurrent reads, and remembers for a moment that the states have been read.
    read: Cache<(), ()>,
    /// A bit for each lane that may have changed since this process last checked it.
    suspected: AtomicU64,
    /// Sales that Redis seems to have lost, at least in part.
    suspected_sales: Mutex<BTreeSet<CouponId>>,
}

impl LaneStates {
    pub(super) fn new(pool: PgPool) -> Self {
        Self {
            pool,
            known: ArcSwap::default(),
            read: Cache::builder().max_capacity(1).time_to_live(limits::LANES_MEMORY).build(),
            suspected: AtomicU64::new(u64::MAX),
            suspected_sales: Mutex::default(),
        }
    }

    /// The epoch of a lane, for the scripts; 0, which no lane has, if the lane is unknown.
    pub fn epoch(&self, lane: Lane) -> i64 {
        self.of(lane).map_or(0, |state| state.epoch)
    }

    pub fn of(&self, lane: Lane) -> Option<LaneState> {
        let known = self.known.load();
        known.get(usize::try_from(lane.get()).ok()?).copied()
    }

    /// The epoch of an open lane.
    ///
    /// # Errors
    ///
    /// [`Failure::Recovering`] when the lane isn't open. The next check is brought forward.
    pub fn admit(&self, lane: Lane) -> Result<i64, Failure> {
        match self.of(lane) {
            Some(state) if state.is_open => Ok(state.epoch),
            _ => Err(self.suspect(lane)),
        }
    }

    /// Brings the next check of the lane forward. Returns the failure to answer with.
    pub fn suspect(&self, lane: Lane) -> Failure {
        self.suspected.fetch_or(bit(lane), Ordering::Relaxed);
        Failure::Recovering(lane)
    }

    /// Brings the next check of the sale's lane forward, because Redis seems to have lost this sale, or a part of it.
    pub fn suspect_sale(&self, coupon: CouponId) {
        let mut sales = self.suspected_sales.lock().expect("no holder of this lock panics");
        if sales.len() < limits::SUSPECTED_SALES_MAX {
            sales.insert(coupon);
        }
        self.suspected.fetch_or(bit(coupon.lane()), Ordering::Relaxed);
    }

    /// Whether one of these lanes has been suspected since the last call.
    pub fn take_suspicion(&self, lanes: impl Iterator<Item = Lane>) -> bool {
        let lanes = lanes.fold(0, |lanes, lane| lanes | bit(lane));
        self.suspected.fetch_and(!lanes, Ordering::Relaxed) & lanes != 0
    }

    /// The sales of these lanes that have been suspected since the last call.
    pub fn take_suspected_sales(&self, is_kept: impl Fn(Lane) -> bool) -> BTreeSet<CouponId> {
        let mut sales = self.suspected_sales.lock().expect("no holder of this lock panics");
        sales.extract_if(.., |coupon| is_kept(coupon.lane())).collect()
    }

    /// Brings the next check of all lanes forward.
    pub fn suspect_all(&self) {
        self.suspected.store(u64::MAX, Ordering::Relaxed);
    }

    pub fn all(&self) -> Vec<(Lane, LaneState)> {
        let known = self.known.load();
        (0..).zip(known.iter()).map(|(lane, state)| (Lane::numbered(lane), *state)).collect()
    }

    /// The lanes that aren't open.
    pub fn recovering(&self) -> Vec<Lane> {
        let known = self.known.load();
        let closed = (0..).zip(known.iter()).filter(|(_, state)| !state.is_open);
        closed.map(|(lane, _)| Lane::numbered(lane)).collect()
    }

    /// Reads the states: once for all callers, and at most once in [`limits::LANES_MEMORY`].
    pub async fn refresh(&self) -> Result<(), Failure> {
        let read = async { Ok::<_, Failure>(self.read_now().await.map(drop)?) };
        Ok(self.read.try_get_with((), read).await?)
    }

    pub async fn read_now(&self) -> sqlx::Result<Vec<StoredLane>> {
        let stored = table::all(&self.pool).await?;
        let state =
            |stored: &StoredLane| LaneState { epoch: stored.epoch, is_open: stored.is_open };
        self.known.store(Arc::new(stored.iter().map(state).collect()));
        Ok(stored)
    }
}

/// The bit of a lane; there are fewer than 64 lanes.
fn bit(lane: Lane) -> u64 {
    1 << (lane.get() & 63)
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;

    use super::*;

    /// A process that knows three lanes: open, recovering, and open.
    fn states() -> LaneStates {
        let pool = sqlx::postgres::PgPoolOptions::new().connect_lazy("postgres://localhost/none");
        let states = LaneStates::new(pool.expect("a valid URL"));
        let state = |epoch, is_open| LaneState { epoch, is_open };
        states.known.store(Arc::new(vec![state(5, true), state(6, false), state(7, true)]));
        states
    }

    #[tokio::test]
    async fn claims_are_admitted_to_open_lanes() {
        bound_this_test();
        let states = states();
        for (lane, admitted) in [(0, Some(5)), (1, None), (2, Some(7)), (3, None), (-1, None)] {
            let take = || states.take_suspicion([Lane::numbered(lane)].into_iter());
            take();
            assert_eq!(states.admit(Lane::numbered(lane)).ok(), admitted, "lane {lane}");
            assert_eq!(take(), admitted.is_none(), "lane {lane}");
        }
        let epochs = [0, 1, 2, 3].map(|lane| states.epoch(Lane::numbered(lane)));
        assert_eq!(epochs, [5, 6, 7, 0]);
        let known: Vec<(i32, i64)> =
            states.all().iter().map(|(lane, state)| (lane.get(), state.epoch)).collect();
        assert_eq!(known, [(0, 5), (1, 6), (2, 7)]);
        assert_eq!(states.recovering(), [Lane::numbered(1)]);
        assert_eq!(states.of(Lane::numbered(3)), None);
    }

    #[tokio::test]
    async fn so_many_suspected_sales_are_remembered_and_each_suspicion_counts() {
        bound_this_test();
        let states = states();
        let coupons = |count: usize| (1..=count as i64).map(|n| CouponId::compose(n, 1));
        for coupon in coupons(limits::SUSPECTED_SALES_MAX + 2) {
            states.suspect_sale(coupon);
            assert!(states.take_suspicion([coupon.lane()].into_iter()));
        }
        let take = || states.take_suspected_sales(|lane| lane == Lane::numbered(0));
        assert_eq!(take(), coupons(1_000).collect());
        assert_eq!(take(), BTreeSet::new());
        let elsewhere = CouponId::compose(1, 2);
        states.suspect_sale(CouponId::compose(1, 1));
        states.suspect_sale(elsewhere);
        assert_eq!(take(), coupons(1).collect(), "another server's stay");
        assert_eq!(states.take_suspected_sales(|_| true), [elsewhere].into());
    }
}
