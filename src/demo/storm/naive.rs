//! The naive design of a first attempt: read the stock, and if any is left, take a unit. This is rung 1 of the ladder
//! (docs/ladder.md), on Redis. The shoppers of a storm ask it beside the service, so both sell to the same crowd on the
//! same Redis.
//!
//! Nothing here provokes the race. How much is oversold depends only on this machine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::cmd;

use crate::store::redis::Redis;

pub struct Naive {
    redis: Redis,
    key: String,
    sold: AtomicU64,
}

/// Time after which the counter expires.
const KEPT: Duration = Duration::from_mins(10);

impl Naive {
    /// Sets the counter to `stock`; `None` if Redis refuses.
    pub async fn open(redis: Redis, key: String, stock: u32) -> Option<Self> {
        let mut set = cmd("SET");
        set.arg(&key).arg(stock).arg("EX").arg(KEPT.as_secs());
        redis.query::<()>(&set).await.ok()?;
        Some(Self { redis, key, sold: AtomicU64::new(0) })
    }

    /// Sells a unit if there seems to be one. Others read the same stock between GET and DECR.
    pub async fn buy(&self) {
        let left = self.redis.query::<Option<i64>>(cmd("GET").arg(&self.key)).await;
        if !matches!(left, Ok(Some(1..))) {
            return;
        }
        if self.redis.query::<i64>(cmd("DECR").arg(&self.key)).await.is_ok() {
            self.sold.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Shoppers that were told that they have a unit.
    pub fn sold(&self) -> u64 {
        self.sold.load(Ordering::Relaxed)
    }
}
