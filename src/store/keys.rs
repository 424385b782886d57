//! Redis keys of the business. All of them are built here.
//!
//! `{L}`, the hash tag of the coupon's lane, puts all keys of a claim into one slot of a Redis Cluster, so that one
//! script may use them together.

use std::fmt::{self, Write};
use std::sync::Arc;

use crate::store::ids::{CouponId, Lane, UserId};

/// Builds keys that start with the installation's prefix.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: Arc<str>,
}

impl Keys {
    /// `prefix` is usually `fs`.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.into() }
    }

    /// HASH: window, stock and state of a sale, which is all that the claim script needs.
    pub fn coupon(&self, coupon: CouponId) -> String {
        format!("{}:{{{}}}:coupon:{coupon}", self.prefix, coupon.lane())
    }

    /// Matches the keys of all sales, for SCAN.
    pub fn all_coupons(&self) -> String {
        let mut pattern = String::new();
        for c in self.prefix.chars() {
            if "*?[]^\\".contains(c) {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern + ":{*}:coupon:*"
    }

    /// HASH: user id -> order id of the live claim, for the buyers in this shard (`coupon/buyers/shards.rs`). These are
    /// the shards that the load of the sale made.
    pub fn buyers(&self, coupon: CouponId, shard: u32) -> String {
        self.buyers_of(coupon, 0, shard)
    }

    /// The same, for shards of another version: the epoch of the recovery that built them, or 0 for the load.
    pub fn buyers_of(&self, coupon: CouponId, version: i64, shard: u32) -> String {
        self.shards(coupon, version).name(shard).to_owned()
    }

    /// The names of the shards of a sale, built without an allocation for each. If a recovery built the shards, its
    /// epoch `version` is part of their names.
    pub fn shards(&self, coupon: CouponId, version: i64) -> ShardNames {
        let mut name = format!("{}:{{{}}}:buyers:{coupon}:", self.prefix, coupon.lane());
        if version > 0 {
            // Writing to a string can't fail.
            let _ = write!(name, "{version}:");
        }
        ShardNames { start: name.len(), name }
    }

    /// STREAM: the order log of a lane.
    pub fn log(&self, lane: Lane) -> String {
        format!("{}:{{{lane}}}:log", self.prefix)
    }

    /// Where the recovery with this epoch puts a key of another type that it finds in place of this log.
    pub fn log_aside(log: &str, epoch: i64) -> String {
        format!("{log}:{epoch}")
    }

    /// HASH: epoch, state and replication ID of a lane (`fence`), and its counts of accepted orders and of orders in
    /// acknowledged entries.
    pub fn lane(&self, lane: Lane) -> String {
        format!("{}:{{{lane}}}:lane", self.prefix)
    }

    /// HASH: user id -> ids of the user's unpaid orders in this lane, while `--unpaid-orders-max` is set.
    pub fn unpaid(&self, lane: Lane) -> String {
        format!("{}:{{{lane}}}:unpaid", self.prefix)
    }

    /// HASH: the same, while a recovery with this epoch builds it. It then replaces the one in use.
    pub fn unpaid_built(&self, lane: Lane, epoch: i64) -> String {
        format!("{}:{{{lane}}}:unpaid:{epoch}", self.prefix)
    }

    /// CHANNEL: the ids of coupons that got units, by a release or a restock.
    pub fn restocks_channel(&self) -> String {
        format!("{}:restocks", self.prefix)
    }

    /// ZSET, beside lane 0: name of each process of the installation -> time when it last reported, in ms by its own
    /// clock.
    pub fn processes(&self) -> String {
        format!("{}:{{0}}:processes", self.prefix)
    }

    /// STRING: counts of this process, for the board; expires soon after its last report.
    pub fn process(&self, name: &str) -> String {
        format!("{}:{{0}}:process:{name}", self.prefix)
    }

    /// STRING: stock of the naive design beside the storm on this coupon; expires.
    pub fn naive(&self, coupon: CouponId) -> String {
        format!("{}:{{{}}}:naive:{coupon}", self.prefix, coupon.lane())
    }

    /// HASH, a re-entrant lock that is held while an order of this user is created. One per lane is enough, because a
    /// coupon is in one lane. Its layout is Redisson's, so a Java service that locks this name is kept out; a lock with
    /// another layout needs another name. A lease on it lasts at most
    /// [`limits::LOCK_LEASE_MAX`](crate::base::limits::LOCK_LEASE_MAX).
    pub fn order_lock(&self, lane: Lane, user: UserId) -> String {
        self.order_lock_name(lane, user).to_string()
    }

    /// The same name, for writing into a list without an allocation.
    pub fn order_lock_name(&self, lane: Lane, user: UserId) -> OrderLockName<'_> {
        OrderLockName { prefix: &self.prefix, lane, user }
    }
}

/// Name of a buyer's lock, for display.
pub struct OrderLockName<'a> {
    prefix: &'a str,
    lane: Lane,
    user: UserId,
}

impl fmt::Display for OrderLockName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix, lane, user } = self;
        write!(f, "{prefix}:{{{lane}}}:rlock:order:{user}")
    }
}

pub struct ShardNames {
    name: String,
    /// Length of the part that all names share, in bytes.
    start: usize,
}

impl ShardNames {
    pub fn name(&mut self, shard: u32) -> &str {
        self.name.truncate(self.start);
        // Writing to a string can't fail.
        let _ = write!(self.name, "{shard}");
        &self.name
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
        assert_eq!(keys.all_coupons(), "fs:{*}:coupon:*");
        assert_eq!(Keys::new("a*b").all_coupons(), "a\\*b:{*}:coupon:*");
        assert_eq!(keys.buyers(coupon, 5), "fs:{3}:buyers:7171:5");
        assert_eq!(keys.buyers_of(coupon, 9, 5), "fs:{3}:buyers:7171:9:5");
        assert_eq!(keys.log(coupon.lane()), "fs:{3}:log");
        assert_eq!(Keys::log_aside("fs:{3}:log", 9), "fs:{3}:log:9");
        assert_eq!(keys.lane(coupon.lane()), "fs:{3}:lane");
        assert_eq!(keys.order_lock(coupon.lane(), user), "fs:{3}:rlock:order:42");
        assert_eq!(keys.unpaid(coupon.lane()), "fs:{3}:unpaid");
        assert_eq!(keys.unpaid_built(coupon.lane(), 9), "fs:{3}:unpaid:9");
        assert_eq!(keys.restocks_channel(), "fs:restocks");
        assert_eq!(keys.processes(), "fs:{0}:processes");
        assert_eq!(keys.process("a-1"), "fs:{0}:process:a-1");
    }

    #[test]
    fn names_of_shards_tell_them_apart() {
        let keys = Keys::new("fs");
        let coupon = CouponId::compose(7, 4);
        for (version, names) in [
            (0, ["fs:{3}:buyers:7171:0", "fs:{3}:buyers:7171:12", "fs:{3}:buyers:7171:3"]),
            (1, ["fs:{3}:buyers:7171:1:0", "fs:{3}:buyers:7171:1:12", "fs:{3}:buyers:7171:1:3"]),
        ] {
            let mut shards = keys.shards(coupon, version);
            assert_eq!([0, 12, 3].map(|shard| shards.name(shard).to_owned()), names);
        }
    }
}
