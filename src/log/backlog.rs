//! Accepted claims that wait to be written, over all lanes, and the bound on them.
//!
//! Redis keeps the order log in memory. When claims are accepted faster than orders are written (Postgres is away, for
//! example), the bound ends the growth: a claim that would be accepted is told `overloaded` instead. Repeats and
//! refusals go on, because the claim script checks the bound last.
//!
//! Each process looks the counts up now and then, and the claim path only reads the result. So the claims that are
//! accepted in between may exceed the bound. While the only server doesn't answer, its last count holds: no claim is
//! accepted then anyway. A silent server among several counts as empty, so that it doesn't stop the others.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use futures_util::future::join_all;
use redis::RedisResult;

use crate::log::LogState;
use crate::store::fleet::Fleet;
use crate::store::ids::Lane;
use crate::store::keys::Keys;

pub struct Backlog {
    fleet: Fleet,
    keys: Keys,
    lanes: AtomicI32,
    /// Claims that may wait.
    orders_max: u64,
    /// Claims that waited at the last look-up, for each server.
    orders: Fleet<AtomicU64>,
}

impl Backlog {
    /// A backlog that counts 0 until the first look-up.
    pub fn new(fleet: Fleet, keys: Keys, lanes: i32, orders_max: u64) -> Self {
        let orders = fleet.map(|_| AtomicU64::new(0));
        Self { fleet, keys, lanes: lanes.into(), orders_max, orders }
    }

    /// Whether more claims may be accepted, as of the last look-up.
    pub fn has_room(&self) -> bool {
        self.orders() < self.orders_max
    }

    /// Claims that waited at the last look-up.
    pub fn orders(&self) -> u64 {
        self.orders.each().map(|orders| orders.load(Ordering::Relaxed)).sum()
    }

    pub fn orders_max(&self) -> u64 {
        self.orders_max
    }

    /// Takes the number of lanes, which only grows.
    pub fn learn_lanes(&self, lanes: i32) {
        self.lanes.store(lanes, Ordering::Relaxed);
    }

    /// Looks the counts up now. Returns the number of claims that wait.
    ///
    /// # Errors
    ///
    /// When a server doesn't answer. If it is the only one, its last count holds; otherwise it counts as empty.
    pub async fn check(&self) -> RedisResult<u64> {
        let check = async |server| {
            let checked = self.check_one(server).await;
            if checked.is_err() && !self.fleet.is_one() {
                self.orders.at(server).store(0, Ordering::Relaxed);
            }
            checked
        };
        let checks = (0..self.fleet.each().len()).map(check);
        join_all(checks).await.into_iter().collect::<RedisResult<()>>()?;
        Ok(self.orders())
    }

    async fn check_one(&self, server: usize) -> RedisResult<()> {
        let mut commands = redis::pipe();
        for lane in self.lanes().filter(|lane| self.fleet.number(*lane) == server) {
            commands.cmd("HMGET").arg(self.keys.lane(lane)).arg("accepted").arg("written");
        }
        let counts: Vec<(Option<u64>, Option<u64>)> =
            self.fleet.at(server).query_all(&commands).await?;
        let waiting = |(accepted, written): (Option<u64>, Option<u64>)| {
            accepted.unwrap_or(0).saturating_sub(written.unwrap_or(0))
        };
        let orders = counts.into_iter().map(waiting).sum();
        self.orders.at(server).store(orders, Ordering::Relaxed);
        Ok(())
    }

    /// The state of each log now, or why it can't be read.
    pub async fn states(&self) -> Vec<(Lane, RedisResult<LogState>)> {
        let state =
            |lane| async move { (lane, LogState::of(self.fleet.of(lane), &self.keys, lane).await) };
        join_all(self.lanes().map(state)).await
    }

    fn lanes(&self) -> impl Iterator<Item = Lane> {
        Lane::all(self.lanes.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::Redis;

    #[test]
    fn there_is_room_below_the_bound() {
        let redis = Redis::new("redis://localhost").expect("a valid URL");
        let backlog = Backlog::new(Fleet::new([redis]), Keys::new("fs"), 1, 3);
        assert_eq!((backlog.orders(), backlog.orders_max()), (0, 3));
        for (orders, has_room) in [(0, true), (2, true), (3, false), (4, false)] {
            backlog.orders.first().store(orders, Ordering::Relaxed);
            assert_eq!((backlog.orders(), backlog.has_room()), (orders, has_room));
        }
    }
}
