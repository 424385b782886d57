//! Accepted claims that wait to be written, over all lanes, and the bound on them.
//!
//! The order log is kept in Redis's memory. When orders are not written as fast as claims are accepted (Postgres is
//! away, say), the bound ends the growth: a claim that would be accepted is told `overloaded` instead. Repeats and
//! refusals go on, because the claim script looks at the bound last.
//!
//! Each process looks now and then and remembers the result; the claim path only reads that. So the claims that are
//! accepted between two looks may exceed the bound. While Redis doesn't answer, the last look holds: no claim is
//! accepted then anyway.
//!
//! A log without unwritten entries stays so until it has a newer entry. One command asks all of those logs for a
//! newer entry, so the cost of a look grows with the claims under way, and not with the lanes. Now and then all logs
//! are looked at, because a Redis that went back in time has no newer entries.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use redis::RedisResult;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::base::limits;
use crate::kit::redis::{Redis, ServerId};
use crate::sale::ids::Lane;
use crate::sale::keys::Keys;
use crate::sale::log::{self, EntryId, LogState};

/// Looks at the logs, and remembers.
pub struct Backlog {
    redis: Redis,
    keys: Keys,
    /// Lanes to ask about.
    lanes: AtomicI32,
    /// Claims that may wait.
    orders_max: u64,
    /// Claims that waited at the last look.
    orders: AtomicU64,
    /// The last look at each log; held by one look at a time.
    seen: Mutex<Option<Seen>>,
}

/// States of the logs at a look.
struct Seen {
    states: Vec<LogState>,
    /// Time of the last look at all logs.
    at: Instant,
    /// The life of Redis that was looked at.
    server: ServerId,
}

impl Backlog {
    /// A backlog that counts 0 until the first look.
    pub fn new(redis: Redis, keys: Keys, lanes: i32, orders_max: u64) -> Self {
        let lanes = lanes.into();
        let orders = AtomicU64::new(0);
        let seen = Mutex::default();
        Self { redis, keys, lanes, orders_max, orders, seen }
    }

    /// Whether more claims may be accepted, as of the last look.
    pub fn has_room(&self) -> bool {
        self.orders.load(Ordering::Relaxed) < self.orders_max
    }

    /// Claims that waited at the last look.
    pub fn orders(&self) -> u64 {
        self.orders.load(Ordering::Relaxed)
    }

    /// Claims that may wait.
    pub fn orders_max(&self) -> u64 {
        self.orders_max
    }

    /// Takes a larger number of lanes.
    pub fn learn_lanes(&self, lanes: i32) {
        self.lanes.store(lanes, Ordering::Relaxed);
    }

    /// Looks now. Returns the number of claims that wait.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer; the last look holds then.
    pub async fn look(&self) -> RedisResult<u64> {
        let states = self.states().await?;
        let orders = states.iter().map(|(_, state)| state.unwritten).sum();
        self.orders.store(orders, Ordering::Relaxed);
        Ok(orders)
    }

    /// Looks now. Returns the state of each log.
    pub async fn states(&self) -> RedisResult<Vec<(Lane, LogState)>> {
        let lanes: Vec<Lane> = Lane::all(self.lanes.load(Ordering::Relaxed)).collect();
        let server = self.redis.link().await?.server().clone();
        let mut seen = self.seen.lock().await;
        match seen.as_mut().filter(|seen| seen.can_be_built_on(&server, lanes.len())) {
            Some(seen) => seen.look_again(&self.redis, &self.keys, &lanes).await?,
            None => {
                let states = LogState::of_all(&self.redis, &self.keys, &lanes).await?;
                *seen = Some(Seen { states, at: Instant::now(), server });
            }
        }
        let states = seen.as_ref().map(|seen| seen.states.clone()).unwrap_or_default();
        Ok(lanes.into_iter().zip(states).collect())
    }
}

impl Seen {
    fn can_be_built_on(&self, server: &ServerId, lanes: usize) -> bool {
        let is_fresh = self.at.elapsed() < limits::BACKLOG_FULL_LOOK_PERIOD;
        is_fresh && self.states.len() == lanes && self.server == *server
    }

    /// Looks at the logs with unwritten entries, and at those with newer ones.
    async fn look_again(&mut self, redis: &Redis, keys: &Keys, lanes: &[Lane]) -> RedisResult<()> {
        let settled: Vec<(String, EntryId)> = lanes
            .iter()
            .zip(&self.states)
            .filter(|(_, state)| state.is_settled())
            .map(|(lane, state)| (keys.log(*lane), state.last))
            .collect();
        let moved = log::newer(redis, &settled, Duration::ZERO).await?;
        let is_stale = |(number, lane): &(usize, &Lane)| {
            !self.states[*number].is_settled() || moved.contains(&keys.log(**lane))
        };
        let (numbers, stale): (Vec<usize>, Vec<Lane>) =
            lanes.iter().enumerate().filter(is_stale).map(|(number, lane)| (number, *lane)).unzip();
        for (number, state) in numbers.into_iter().zip(LogState::of_all(redis, keys, &stale).await?)
        {
            self.states[number] = state;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;

    use super::*;

    fn backlog(orders_max: u64) -> Backlog {
        let redis = Redis::new("redis://localhost").expect("a valid URL");
        Backlog::new(redis, Keys::new("fs"), 1, orders_max)
    }

    #[test]
    fn there_is_room_below_the_bound() {
        let backlog = backlog(3);
        assert_eq!((backlog.orders(), backlog.orders_max()), (0, 3));
        for (orders, has_room) in [(0, true), (2, true), (3, false), (4, false)] {
            backlog.orders.store(orders, Ordering::Relaxed);
            assert_eq!((backlog.orders(), backlog.has_room()), (orders, has_room));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_builds_on_a_young_one_at_the_same_logs_in_the_same_life() {
        bound_this_test();
        let [life, other] = ["a", "b"].map(ServerId::named);
        let states = vec![LogState::default(); 2];
        let seen = Seen { states, at: Instant::now(), server: life.clone() };
        let can = |server, logs| seen.can_be_built_on(server, logs);
        assert_eq!([can(&life, 2), can(&life, 3), can(&other, 2)], [true, false, false]);
        let nearly = limits::BACKLOG_FULL_LOOK_PERIOD - Duration::from_millis(1);
        tokio::time::advance(nearly).await;
        assert!(can(&life, 2));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!can(&life, 2));
    }
}
