//! The design that a first attempt has: read the stock, and if there is some, take one. It is rung 1 of the ladder
//! (docs/ladder.md), on Redis. The shoppers of a storm ask it beside the service, so both sell to one crowd, on one Redis.
//!
//! Nothing here provokes the race: how much is oversold is what this machine did.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::cmd;

use crate::store::redis::Redis;

/// A counter that shoppers race for.
pub struct Naive {
    redis: Redis,
    key: String,
    sold: AtomicU64,
}

/// Time after which Redis forgets the counter.
const KEPT: Duration = Duration::from_mins(10);

impl Naive {
    /// A counter with this many units; `None` if Redis doesn't take it.
    pub async fn open(redis: Redis, key: String, stock: u32) -> Option<Self> {
        let mut set = cmd("SET");
        set.arg(&key).arg(stock).arg("EX").arg(KEPT.as_secs());
        redis.query::<()>(&set).await.ok()?;
        Some(Self { redis, key, sold: AtomicU64::new(0) })
    }

    /// Sells a unit, if there seems to be one. Between the look and the step down others look, too.
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
