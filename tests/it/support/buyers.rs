//! The buyers of a sale, as they lie in Redis.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Add;
use std::sync::OnceLock;

use chrono::TimeDelta;
use flash_sale::coupon::buyers::shards::{SENTINEL, Shards};
use flash_sale::store::ids::{CouponId, order_id};

use super::{TestApp, eventually, now, user};

/// Order ids of buyers that are written down by hand; user 1's is the next one.
/// It is newer than any order of the service, and less than a day ahead.
pub const FIRST_ORDER_BY_HAND: ByHand = ByHand;

/// A number that is the same for the whole run.
#[derive(Clone, Copy)]
pub struct ByHand;

impl ByHand {
    /// The number.
    pub fn get(self) -> i64 {
        static FIRST: OnceLock<i64> = OnceLock::new();
        *FIRST.get_or_init(|| order_id::first_at(now() + TimeDelta::hours(12)))
    }
}

impl Add<i64> for ByHand {
    type Output = i64;

    fn add(self, number: i64) -> i64 {
        self.get() + number
    }
}

impl fmt::Display for ByHand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl TestApp {
    /// How many shards Redis says that there are; one if it doesn't hold the sale.
    pub async fn shards(&self, coupon: CouponId) -> Shards {
        let key = self.keys().coupon(coupon);
        let shards: Option<String> = self.redis(&["HGET", &key, "shards"]).await;
        shards.map_or(Shards::ONE, |shards| shards.parse().expect("shards"))
    }

    /// Keys of all shards.
    pub async fn shard_keys(&self, coupon: CouponId) -> Vec<String> {
        let shards = self.shards(coupon).await;
        shards.all().map(|shard| shards.key(self.keys(), coupon, shard)).collect()
    }

    /// Key of the shard that this user belongs to.
    pub async fn shard_of(&self, coupon: CouponId, id: i64) -> String {
        let shards = self.shards(coupon).await;
        shards.key(self.keys(), coupon, shards.of(user(id)))
    }

    /// Buyers, each with the order.
    pub async fn buyers(&self, coupon: CouponId) -> BTreeMap<i64, i64> {
        self.buyers_in(&self.shard_keys(coupon).await).await
    }

    /// Buyers in these shards, each with the order.
    pub async fn buyers_in(&self, shard_keys: &[String]) -> BTreeMap<i64, i64> {
        let mut buyers = BTreeMap::new();
        for key in shard_keys {
            let fields: BTreeMap<String, String> = self.redis(&["HGETALL", key]).await;
            let fields = fields.into_iter().filter(|(field, _)| field != SENTINEL);
            buyers.extend(fields.map(|(user, order)| {
                (user.parse::<i64>().expect("an id"), order.parse::<i64>().expect("an id"))
            }));
        }
        buyers
    }

    /// How many buyers there are.
    pub async fn buyers_count(&self, coupon: CouponId) -> i64 {
        i64::try_from(self.buyers(coupon).await.len()).expect("some")
    }

    /// Writes a buyer down, behind everybody's back.
    pub async fn set_buyer(&self, coupon: CouponId, id: i64, order: i64) {
        let key = self.shard_of(coupon, id).await;
        let _: i64 = self.redis(&["HSET", &key, &id.to_string(), &order.to_string()]).await;
    }

    /// Takes a buyer out, behind everybody's back.
    pub async fn forget_buyer(&self, coupon: CouponId, id: i64) {
        let key = self.shard_of(coupon, id).await;
        assert_eq!(self.redis::<i64>(&["HDEL", &key, &id.to_string()]).await, 1);
    }

    /// Deletes the shards of a sale.
    pub async fn lose_buyers(&self, coupon: CouponId) {
        for key in self.shard_keys(coupon).await {
            let _: i64 = self.redis(&["DEL", &key]).await;
        }
    }

    /// Deletes all keys of a sale.
    pub async fn lose_sale(&self, coupon: CouponId) {
        self.lose_buyers(coupon).await;
        let _: i64 = self.redis(&["DEL", &self.keys().coupon(coupon)]).await;
    }

    /// Waits for the next second of Redis: order ids carry seconds, so an order of the second in which all was written
    /// may hide an unknown claim.
    pub async fn next_second(&self) {
        let second = async || self.redis::<(i64, i64)>(&["TIME"]).await.0;
        let now = second().await;
        eventually("the next second", async || second().await > now).await;
    }

    /// Writes users 1 to `units` down as the buyers of all units of a sale, in Redis only.
    pub async fn sell_out_by_hand(&self, coupon: CouponId, units: i64) {
        let shards = self.shards(coupon).await;
        let mut by_shard = vec![Vec::new(); shards.count() as usize];
        for id in 1..=units {
            by_shard[shards.of(user(id)) as usize].push(id);
        }
        for (shard, ids) in shards.all().zip(by_shard).filter(|(_, ids)| !ids.is_empty()) {
            let mut command = redis::cmd("HSET");
            command.arg(self.keys().buyers(coupon, shard));
            for id in ids {
                command.arg(id).arg(FIRST_ORDER_BY_HAND + id);
            }
            self.app.stores.fleet.first().query::<i64>(&command).await.expect("Redis answers");
        }
        let _: i64 = self.redis(&["HSET", &self.keys().coupon(coupon), "stock", "0"]).await;
    }
}
