//! Redis keys of the business; all of them are built here.
//!
//! `{L}`, the hash tag of the coupon's lane, puts all keys of one claim into one slot of a Redis
//! Cluster, so that one script may touch them together.

use std::fmt::{self, Write};
use std::sync::Arc;

use crate::store::ids::{CouponId, Lane, UserId};

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

    /// Pattern of the keys of all sales, for SCAN.
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

    /// HASH: user id -> order id of the live claim, for the buyers in this shard (`coupon/buyers/shards.rs`); of the
    /// generation of the load.
    pub fn buyers(&self, coupon: CouponId, shard: u32) -> String {
        self.buyers_of(coupon, 0, shard)
    }

    /// The same, of any generation of shards.
    pub fn buyers_of(&self, coupon: CouponId, generation: i64, shard: u32) -> String {
        self.shards(coupon, generation).name(shard).to_owned()
    }

    /// The names of the shards of a sale, built without an allocation for each. The epoch of the recovery that built
    /// them is part of their names.
    pub fn shards(&self, coupon: CouponId, generation: i64) -> ShardNames {
        let mut name = format!("{}:{{{}}}:buyers:{coupon}:", self.prefix, coupon.lane());
        if generation > 0 {
            // Writing to a string can't fail.
            let _ = write!(name, "{generation}:");
        }
        ShardNames { start: name.len(), name }
    }

    /// STREAM: the order log of a lane.
    pub fn log(&self, lane: Lane) -> String {
        format!("{}:{{{lane}}}:log", self.prefix)
    }

    /// A key of another type that stood in the place of this log, as the recovery with this epoch has renamed it.
    pub fn log_aside(log: &str, epoch: i64) -> String {
        format!("{log}:{epoch}")
    }

    /// HASH: epoch, state and replication ID of a lane (`fence`); and the orders that were ever promised in it, and those of
    /// acknowledged entries.
    pub fn lane(&self, lane: Lane) -> String {
        format!("{}:{{{lane}}}:lane", self.prefix)
    }

    /// HASH: user id -> order ids of their unpaid orders in this lane, while `--unpaid-orders-max` is set.
    pub fn unpaid(&self, lane: Lane) -> String {
        format!("{}:{{{lane}}}:unpaid", self.prefix)
    }

    /// HASH: the same, as a recovery with this epoch builds it before it takes the place of the one in use.
    pub fn unpaid_built(&self, lane: Lane, epoch: i64) -> String {
        format!("{}:{{{lane}}}:unpaid:{epoch}", self.prefix)
    }

    /// CHANNEL: tells the id of each coupon of which units have come back, or were added.
    pub fn additions_channel(&self) -> String {
        format!("{}:returns", self.prefix)
    }

    /// ZSET, beside lane 0: names of the processes of the installation -> time of their last word, in ms by their own clocks.
    pub fn processes(&self) -> String {
        format!("{}:{{0}}:processes", self.prefix)
    }

    /// STRING: counts of this process, for the board; expires soon after its last word.
    pub fn process(&self, name: &str) -> String {
        format!("{}:{{0}}:process:{name}", self.prefix)
    }

    /// STRING: units of the naive design beside the storm on this coupon; expires.
    pub fn naive(&self, coupon: CouponId) -> String {
        format!("{}:{{{}}}:naive:{coupon}", self.prefix, coupon.lane())
    }

    /// HASH, a re-entrant lock: held while an order of this user is created. Per lane is enough, since a coupon has
    /// one. Its layout is Redisson's, so a Java service that locks this name stays out; another layout gets another
    /// name. A lease on it is at most [`limits::LOCK_LEASE_MAX`](crate::base::limits::LOCK_LEASE_MAX) long.
    pub fn order_lock(&self, lane: Lane, user: UserId) -> String {
        self.order_lock_name(lane, user).to_string()
    }

    /// The same name, to be written into a list of names.
    pub fn order_lock_name(&self, lane: Lane, user: UserId) -> OrderLockName<'_> {
        OrderLockName { prefix: &self.prefix, lane, user }
    }
}

/// Name of a buyer's lock.
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

/// Builder of the names of one sale's shards.
pub struct ShardNames {
    name: String,
    /// Length of the part that all names share.
    start: usize,
}

impl ShardNames {
    /// The name of this shard.
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
        assert_eq!(keys.additions_channel(), "fs:returns");
        assert_eq!(keys.processes(), "fs:{0}:processes");
        assert_eq!(keys.process("a-1"), "fs:{0}:process:a-1");
    }

    #[test]
    fn names_of_shards_tell_them_apart() {
        let keys = Keys::new("fs");
        let coupon = CouponId::compose(7, 4);
        for (generation, names) in [
            (0, ["fs:{3}:buyers:7171:0", "fs:{3}:buyers:7171:12", "fs:{3}:buyers:7171:3"]),
            (1, ["fs:{3}:buyers:7171:1:0", "fs:{3}:buyers:7171:1:12", "fs:{3}:buyers:7171:1:3"]),
        ] {
            let mut shards = keys.shards(coupon, generation);
            assert_eq!([0, 12, 3].map(|shard| shards.name(shard).to_owned()), names);
        }
    }
}
