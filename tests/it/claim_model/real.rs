//! The side of the model test that really happens: the scripts, on Redis.

use flash_sale::sale::ids::CouponId;
use redis::FromRedisValue;

use super::{Sale, Window};
use crate::support::TestApp;

const CLAIM: &str = include_str!("../../../lua/claim.lua");
const GIVE_BACK: &str = include_str!("../../../lua/give_back.lua");
const FREE_PLACE: &str = include_str!("../../../lua/free_place.lua");

/// The same on Redis.
pub struct Real<'a> {
    pub app: &'a TestApp,
    pub coupon: CouponId,
    pub hash: String,
    pub buyers: String,
    pub unpaid: String,
    pub log: String,
}

impl<'a> Real<'a> {
    pub async fn new(app: &'a TestApp, sequence: i64) -> Self {
        let (coupon, keys) = (CouponId::compose(sequence, 1), app.keys());
        let (log, unpaid) = (keys.log(coupon.lane()), keys.unpaid(coupon.lane()));
        let _: i64 = app.redis(&["DEL", &log, &unpaid]).await;
        Self { app, coupon, hash: keys.coupon(coupon), buyers: keys.buyers(coupon), unpaid, log }
    }

    /// What the script replies; of the time until the sale opens, only that there is one.
    pub async fn claim(
        &self,
        epoch: i64,
        has_room: bool,
        unpaid_max: usize,
        claims: &[(i64, i64)],
    ) -> Vec<(String, String)> {
        let keys = [&self.hash, &self.buyers, &self.log, &self.unpaid];
        let (coupon, epoch) = (self.coupon.to_string(), epoch.to_string());
        let (has_room, unpaid_max) = (u8::from(has_room).to_string(), unpaid_max.to_string());
        let arguments = [coupon, epoch, has_room, unpaid_max];
        let replies: Vec<String> = self.eval(CLAIM, &keys, &arguments, claims).await;
        let readable = |reply: &[String]| match reply {
            [code, ms] if code == "NOT_STARTED" && ms.parse().is_ok_and(|ms: i64| ms > 0) => {
                (code.clone(), "ms".to_owned())
            }
            reply => (reply[0].clone(), reply[1..].join(" and ")),
        };
        replies.chunks(2).map(readable).collect()
    }

    /// A code for each unit, or one for all.
    pub async fn give_back(&self, epoch: i64, units: &[(i64, i64)]) -> Vec<String> {
        let channel = self.app.keys().returns_channel();
        let arguments = [self.coupon.to_string(), epoch.to_string(), channel];
        self.eval(GIVE_BACK, &[&self.hash, &self.buyers], &arguments, units).await
    }

    /// How many were on a list.
    pub async fn free_places(&self, orders: &[(i64, i64)]) -> i64 {
        self.eval(FREE_PLACE, &[&self.unpaid], &[], orders).await
    }

    /// Calls a script with these keys, arguments, and pairs of user and order.
    async fn eval<T: FromRedisValue>(
        &self,
        script: &str,
        keys: &[&String],
        arguments: &[String],
        pairs: &[(i64, i64)],
    ) -> T {
        let pairs: Vec<String> =
            pairs.iter().flat_map(|(user, order)| [user.to_string(), order.to_string()]).collect();
        let count = keys.len().to_string();
        let mut words = vec!["EVAL", script, &count];
        words.extend(keys.iter().map(|key| key.as_str()));
        words.extend(arguments.iter().chain(&pairs).map(String::as_str));
        self.app.redis(&words).await
    }

    pub async fn set(&self, fields: &[(&str, &str)]) {
        let pairs = fields.iter().flat_map(|(field, value)| [*field, *value]);
        let words: Vec<&str> = ["HSET", &self.hash].into_iter().chain(pairs).collect();
        let _: i64 = self.app.redis(&words).await;
    }

    pub async fn set_window(&self, window: Window) {
        let (opens_ms, closes_ms) = window.ms();
        let (opens_ms, closes_ms) = (opens_ms.to_string(), closes_ms.to_string());
        self.set(&[("opens_ms", &opens_ms), ("closes_ms", &closes_ms)]).await;
    }

    pub async fn create(&self, sale: &Sale) {
        self.delete(&self.hash).await;
        self.set_window(sale.window).await;
        for (field, number) in [
            ("stock", sale.stock),
            ("total", sale.total),
            ("epoch", sale.epoch),
            ("layout", sale.layout),
        ] {
            self.set(&[(field, &number.to_string())]).await;
        }
        self.set(&[("state", sale.state.name())]).await;
    }

    pub async fn delete(&self, key: &str) {
        let _: i64 = self.app.redis(&["DEL", key]).await;
    }
}
