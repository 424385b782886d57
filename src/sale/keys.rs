//! Redis keys of the business; all of them are built here.
//!
//! `{L}`, the hash tag of the coupon's lane, puts all keys of one claim into one slot of a Redis
//! Cluster, so that one script may touch them together.

use std::sync::Arc;

use crate::sale::ids::{CouponId, Lane, UserId};

/// Builder of keys that start with the installation's prefix.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: Arc<str>,
}

impl Keys {
    /// Keys that start with `prefix`, usually `fs`.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.into() }
    }

    /// HASH: window, stock and state of a sale; all that the claim script needs.
    pub fn coupon(&self, coupon: CouponId) -> String {
        format!("{}:{{{}}}:coupon:{coupon}", self.prefix, coupon.lane())
    }

    /// HASH: user id -> order id of the live claim, for the buyers in this shard (`sale/buyers/shards.rs`).
    pub fn buyers(&self, coupon: CouponId, shard: u32) -> String {
        format!("{}:{{{}}}:buyers:{coupon}:{shard}", self.prefix, coupon.lane())
    }

    /// STREAM: the order log of a lane.
    pub fn log(&self, lane: Lane) -> String {
        format!("{}:{{{lane}}}:orders", self.prefix)
    }

    /// HASH: user id -> order ids of their unpaid orders in this lane, while `--unpaid-orders-max` is set.
    pub fn unpaid(&self, lane: Lane) -> String {
        format!("{}:{{{lane}}}:unpaid", self.prefix)
    }

    /// CHANNEL: tells the id of each coupon of which units have come back, or were added.
    pub fn additions_channel(&self) -> String {
        format!("{}:returns", self.prefix)
    }

    /// HASH, a re-entrant lock: held while an order of this user is created. Per lane is enough, since a coupon has
    /// one. Its layout is Redisson's, so a Java service that locks this name stays out; another layout gets another
    /// name. A lease on it is at most [`limits::LOCK_LEASE_MAX`](crate::base::limits::LOCK_LEASE_MAX) long.
    pub fn order_lock(&self, lane: Lane, user: UserId) -> String {
        format!("{}:{{{lane}}}:rlock:order:{user}", self.prefix)
    }

    /// STRING, with `:yyyy:mm:dd` behind it: the order sequence of a UTC day.
    pub fn order_sequence(&self) -> String {
        format!("{}:icr:order", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_look_as_documented() {
        let keys = Keys::new("fs");
        let coupon = CouponId::compose(7, 4);
        let user = UserId::new(42).unwrap();
        assert_eq!(keys.coupon(coupon), "fs:{3}:coupon:7171");
        assert_eq!(keys.buyers(coupon, 5), "fs:{3}:buyers:7171:5");
        assert_eq!(keys.log(coupon.lane()), "fs:{3}:orders");
        assert_eq!(keys.order_lock(coupon.lane(), user), "fs:{3}:rlock:order:42");
        assert_eq!(keys.order_sequence(), "fs:icr:order");
        assert_eq!(keys.unpaid(coupon.lane()), "fs:{3}:unpaid");
        assert_eq!(keys.additions_channel(), "fs:returns");
    }
}
