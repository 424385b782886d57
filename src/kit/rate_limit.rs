//! A limit on how often each key may do something, kept in this process's memory.
//!
//! Each instance counts for itself: behind a balancer over n instances, the effective limit is n times as high. The
//! limit keeps one impatient client from crowding out the others; it is not exact.

use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

/// Limits how often each key may pass.
pub struct RateLimit<K: Hash + Eq + Clone> {
    name: &'static str,
    limiter: DefaultKeyedRateLimiter<K>,
}

#[derive(Clone, Copy, Debug)]
pub struct TooOften {
    /// Name of the limit.
    pub bound: &'static str,
    /// Time after which the key may try again.
    pub wait: Duration,
}

impl<K: Hash + Eq + Clone> RateLimit<K> {
    /// Allows each key `per_second` passes a second, also in one burst. `None` for 0, which means no limit.
    pub fn new(name: &'static str, per_second: u32) -> Option<Self> {
        let per_second = NonZeroU32::new(per_second)?;
        let limiter = RateLimiter::keyed(Quota::per_second(per_second));
        Some(Self { name, limiter })
    }

    /// Lets `key` pass once.
    ///
    /// # Errors
    ///
    /// When the key has passed too often.
    pub fn pass(&self, key: &K) -> Result<(), TooOften> {
        self.limiter.check_key(key).map_err(|refused| TooOften {
            bound: self.name,
            wait: refused.wait_time_from(DefaultClock::default().now()),
        })
    }

    /// Forgets keys that have their full quota again. Otherwise the map would grow for ever.
    pub fn forget_idle(&self) {
        self.limiter.retain_recent();
        self.limiter.shrink_to_fit();
    }
}

/// The part of an address that identifies one client. In IPv6 a household has a whole /64.
pub fn network(address: IpAddr) -> IpAddr {
    const HOUSEHOLD: u32 = 64;
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> HOUSEHOLD << HOUSEHOLD))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_household_is_one_client() {
        for (address, of) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2::9", "2001:db8:1:2::"),
            ("2001:db8:1:3::9", "2001:db8:1:3::"),
        ] {
            assert_eq!(network(address.parse().unwrap()), of.parse::<IpAddr>().unwrap());
        }
    }

    #[test]
    fn each_key_has_its_own_bound_and_none_is_no_bound() {
        assert!(RateLimit::<i64>::new("none", 0).is_none());
        let refused = loop {
            let limit = RateLimit::new("two", 2).expect("a bound");
            let began = Instant::now();
            assert!(limit.pass(&1).is_ok() && limit.pass(&1).is_ok() && limit.pass(&2).is_ok());
            let third = limit.pass(&1);
            // A thread that was delayed by half a second rightly gets one more.
            if began.elapsed() < Duration::from_millis(500) {
                break third.expect_err("the third within a moment");
            }
        };
        assert_eq!(refused.bound, "two");
        assert!(refused.wait <= Duration::from_millis(500), "{refused:?}");
    }
}
