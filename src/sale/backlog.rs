//! Accepted claims that wait to be written, over all lanes, and the bound on them.
//!
//! The order log is kept in Redis's memory. When orders are not written as fast as claims are accepted
//! (Postgres is away, say), the bound ends the growth: a claim that would be accepted is told
//! `overloaded` instead. Repeats and refusals go on as ever, because the claim script looks at the bound last.
//!
//! Each process looks now and then and remembers what it saw; the claim path only reads that. So the
//! bound is exceeded by what is accepted between two looks. While Redis can't be asked, the last look
//! holds: nothing is accepted then anyway.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use redis::RedisResult;

use super::ids::Lane;
use super::keys::Keys;
use super::order_log::OrderLog;
use crate::kit::redis::Redis;

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
}

impl Backlog {
    /// Nothing waits, until the first look.
    pub fn new(redis: Redis, keys: Keys, lanes: i32, orders_max: u64) -> Self {
        Self { redis, keys, lanes: lanes.into(), orders_max, orders: AtomicU64::new(0) }
    }

    /// Whether more claims may be accepted, as of the last look.
    pub fn has_room(&self) -> bool {
        self.orders.load(Ordering::Relaxed) < self.orders_max
    }

    /// Claims that may wait.
    pub fn orders_max(&self) -> u64 {
        self.orders_max
    }

    /// There may be more lanes now.
    pub fn learn_lanes(&self, lanes: i32) {
        self.lanes.store(lanes, Ordering::Relaxed);
    }

    /// Looks now. Returns how many claims wait.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer; what was seen last still holds then.
    pub async fn look(&self) -> RedisResult<u64> {
        let mut orders = 0;
        for lane in Lane::all(self.lanes.load(Ordering::Relaxed)) {
            let unwritten = OrderLog::unwritten(&self.redis, &self.keys.log(lane)).await?;
            orders += unwritten.pending + unwritten.unread;
        }
        self.orders.store(orders, Ordering::Relaxed);
        Ok(orders)
    }
}
