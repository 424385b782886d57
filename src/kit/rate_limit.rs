//! A bound on how often one subject may do something, kept in this process's memory.
//!
//! Each instance counts for itself: behind a balancer over n instances the real bound is n times as high. The bound
//! keeps one impatient client from crowding out the others; it is not exact.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

/// Bounds how often each key may pass.
pub struct RateLimit {
    limiter: DefaultKeyedRateLimiter<i64>,
}

impl RateLimit {
    /// `per_second` times a second for each key, also as a burst.
    pub fn new(per_second: NonZeroU32) -> Self {
        Self { limiter: RateLimiter::keyed(Quota::per_second(per_second)) }
    }

    /// Lets `key` pass once.
    ///
    /// # Errors
    ///
    /// The time after which the key may try again.
    pub fn pass(&self, key: i64) -> Result<(), Duration> {
        self.limiter
            .check_key(&key)
            .map_err(|refused| refused.wait_time_from(DefaultClock::default().now()))
    }

    /// Forgets keys that are back at their full quota; without it the map grows for ever.
    pub fn forget_idle(&self) {
        self.limiter.retain_recent();
        self.limiter.shrink_to_fit();
    }
}
