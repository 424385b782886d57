//! Accepted claims that wait to be written, over all lanes, and the bound on them.
//!
//! The order log is kept in Redis's memory. When orders are not written as fast as claims are accepted (Postgres is
//! away, say), the bound ends the growth: a claim that would be accepted is told `overloaded` instead. Repeats and
//! refusals go on, because the claim script looks at the bound last.
//!
//! Each process looks now and then and remembers the result; the claim path only reads that. So the claims that are
//! accepted between two looks may exceed the bound. While Redis doesn't answer, the last look holds: no claim is
//! accepted then anyway.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use futures_util::future::join_all;
use redis::RedisResult;

use crate::log::LogState;
use crate::store::fleet::Fleet;
use crate::store::ids::Lane;
use crate::store::keys::Keys;

/// Looks at the lanes' counts, and remembers.
pub struct Backlog {
    fleet: Fleet,
    keys: Keys,
    /// Lanes to ask about.
    lanes: AtomicI32,
    /// Claims that may wait.
    orders_max: u64,
    /// Claims that waited at the last look, for each server.
    orders: Fleet<AtomicU64>,
}

impl Backlog {
    /// A backlog that counts 0 until the first look.
    pub fn new(fleet: Fleet, keys: Keys, lanes: i32, orders_max: u64) -> Self {
        let orders = fleet.map(|_| AtomicU64::new(0));
        Self { fleet, keys, lanes: lanes.into(), orders_max, orders }
    }

    /// Whether more claims may be accepted, as of the last look.
    pub fn has_room(&self) -> bool {
        self.orders() < self.orders_max
    }

    /// Claims that waited at the last look.
    pub fn orders(&self) -> u64 {
        self.orders.each().map(|orders| orders.load(Ordering::Relaxed)).sum()
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
    /// When a server doesn't answer; the last look at it holds then. One of several accepts nothing meanwhile, and counts
    /// as empty: it must not stop the others.
    pub async fn look(&self) -> RedisResult<u64> {
        let look = async |server| {
            let looked = self.look_at(server).await;
            if looked.is_err() && !self.fleet.is_one() {
                self.orders.at(server).store(0, Ordering::Relaxed);
            }
            looked
        };
        let looks = (0..self.fleet.each().len()).map(look);
        join_all(looks).await.into_iter().collect::<RedisResult<()>>()?;
        Ok(self.orders())
    }

    async fn look_at(&self, server: usize) -> RedisResult<()> {
        let mut commands = redis::pipe();
        for lane in self.lanes().filter(|lane| self.fleet.number(*lane) == server) {
            commands.cmd("HMGET").arg(self.keys.lane(lane)).arg("promised").arg("written");
        }
        let counts: Vec<(Option<u64>, Option<u64>)> =
            self.fleet.at(server).query_all(&commands).await?;
        let waiting = |(promised, written): (Option<u64>, Option<u64>)| {
            promised.unwrap_or(0).saturating_sub(written.unwrap_or(0))
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
