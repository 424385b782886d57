//! The real side of the model test: the scripts, on Redis.

use std::sync::Arc;

use flash_sale::coupon::buyers::shards::{SENTINEL, Shards};
use flash_sale::store::ids::CouponId;
use flash_sale::store::redis::Link;
use flash_sale::store::script::VariadicScript;
use redis::FromRedisValue;

use super::{SECOND, SHARDS, Sale, Window};
use crate::support::{TestApp, user};

/// The same on Redis.
pub struct Real<'a> {
    pub app: &'a TestApp,
    pub coupon: CouponId,
    pub hash: String,
    pub shards: Vec<String>,
    pub unpaid: String,
    pub lane: String,
    pub log: String,
    scripts: Scripts,
    link: Arc<Link>,
}

struct Scripts {
    claim: VariadicScript,
    release: VariadicScript,
    free_place: VariadicScript,
}

impl<'a> Real<'a> {
    pub async fn new(app: &'a TestApp, sequence: i64) -> Self {
        let coupon = CouponId::compose(sequence, 1);
        let keys = app.keys();
        let log = app.log(coupon.lane());
        let lane = keys.lane(coupon.lane());
        let unpaid = keys.unpaid(coupon.lane());
        let _: i64 = app.redis(&["DEL", &log, &lane, &unpaid]).await;
        let second = SECOND.to_string();
        let link = app.app.stores.fleet.first().link().await.expect("Redis answers");
        let mut command = redis::cmd("INFO");
        let info: redis::InfoDict =
            link.query(command.arg("replication")).await.expect("Redis tells");
        let replid: String = info.get("master_replid").expect("it has one");
        let open = ["epoch", "1", "state", "open", "replid", &replid, "second", &second];
        let _: i64 = app.redis(&[&["HSET", &lane][..], &open].concat()).await;
        let shards = (0..SHARDS).map(|shard| keys.buyers(coupon, shard)).collect();
        let hash = keys.coupon(coupon);
        let scripts = Scripts {
            claim: VariadicScript::new(include_str!("../../../../lua/claim.lua")),
            release: VariadicScript::new(include_str!("../../../../lua/release_units.lua")),
            free_place: VariadicScript::new(include_str!("../../../../lua/free_place.lua")),
        };
        Self { app, coupon, hash, shards, unpaid, lane, log, scripts, link }
    }

    /// The replies of the script; of the time until the sale opens, only that there is one.
    pub async fn claim(
        &self,
        epoch: i64,
        shards: u32,
        has_room: bool,
        unpaid_max: usize,
        claims: &[i64],
    ) -> Vec<(String, String)> {
        let own = [&self.hash, &self.lane, &self.log, &self.unpaid].map(String::clone);
        let keys = [&own[..], &self.shards_of(shards, claims.iter().copied())].concat();
        let coupon = self.coupon.to_string();
        let epoch = epoch.to_string();
        let has_room = u8::from(has_room).to_string();
        let unpaid_max = unpaid_max.to_string();
        let lane = self.coupon.lane().to_string();
        let terms = [coupon, lane, epoch, has_room, unpaid_max, shards.to_string()];
        let users = claims.iter().map(i64::to_string);
        let arguments: Vec<String> = terms.into_iter().chain(users).collect();
        let replies: Vec<String> = self.run(&self.scripts.claim, &keys, &arguments, &[]).await;
        let [letters, number, first, first_orders @ ..] = &replies[..] else {
            panic!("{replies:?}")
        };
        let mut first_orders = first_orders.iter();
        let mut accepted = first.parse::<i64>().into_iter().flat_map(|first| first..);
        let readable = |letter: char| match letter {
            'A' => ("ACCEPTED", accepted.next().expect("an order").to_string()),
            'D' => ("ALREADY_CLAIMED", first_orders.next().expect("an order").clone()),
            'N' if number.parse().is_ok_and(|ms: i64| ms > 0) => ("NOT_STARTED", "ms".to_owned()),
            'P' => ("PAUSED", String::new()),
            'E' => ("ENDED", String::new()),
            'S' => ("SOLD_OUT", number.clone()),
            'U' => ("TOO_MANY_UNPAID", String::new()),
            'O' => ("OVERLOADED", String::new()),
            'V' => ("RECOVERING", String::new()),
            'L' => ("NOT_LOADED", String::new()),
            'T' => ("STALE", String::new()),
            'R' => ("RESHARDED", number.clone()),
            'X' => ("LOST", String::new()),
            letter => panic!("{letter}: {replies:?}"),
        };
        letters.chars().map(readable).map(|(code, detail)| (code.to_owned(), detail)).collect()
    }

    /// A code for each unit, or one for all.
    pub async fn release(&self, epoch: i64, shards: u32, units: &[(i64, i64)]) -> Vec<String> {
        let of_sale = vec![self.hash.clone(), self.lane.clone()];
        let users = units.iter().map(|(user, _)| *user);
        let keys = [of_sale, self.shards_of(shards, users)].concat();
        let channel = self.app.keys().restocks_channel();
        let coupon = self.coupon.to_string();
        let epoch = epoch.to_string();
        let arguments = [coupon, epoch, shards.to_string(), channel];
        self.run(&self.scripts.release, &keys, &arguments, units).await
    }

    /// The shard of each of these users, for a caller that believes in so many shards.
    fn shards_of(&self, shards: u32, users: impl Iterator<Item = i64>) -> Vec<String> {
        let shards = Shards::new(shards).expect("there are some");
        let shard_of = |id: i64| self.app.keys().buyers(self.coupon, shards.of(user(id)));
        users.map(shard_of).collect()
    }

    /// Number of orders that were on a list.
    pub async fn free_places(&self, orders: &[(i64, i64)]) -> i64 {
        self.run(&self.scripts.free_place, std::slice::from_ref(&self.unpaid), &[], orders).await
    }

    /// Calls a script with these keys, arguments, and pairs of user and order.
    async fn run<T: FromRedisValue>(
        &self,
        script: &VariadicScript,
        keys: &[String],
        arguments: &[String],
        pairs: &[(i64, i64)],
    ) -> T {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let pairs = pairs.iter().flat_map(|(user, order)| [user.to_string(), order.to_string()]);
        let arguments: Vec<String> = arguments.iter().cloned().chain(pairs).collect();
        script.run(&self.link, &keys, arguments).await.expect("the script runs")
    }

    pub async fn set_lane(&self, open: bool) {
        let state = if open { "open" } else { "recovering" };
        let _: i64 = self.app.redis(&["HSET", &self.lane, "state", state]).await;
    }

    pub async fn set(&self, fields: &[(&str, &str)]) {
        let pairs = fields.iter().flat_map(|(field, value)| [*field, *value]);
        let words: Vec<&str> = ["HSET", &self.hash].into_iter().chain(pairs).collect();
        let _: i64 = self.app.redis(&words).await;
    }

    pub async fn set_window(&self, window: Window) {
        let (opens_ms, closes_ms) = window.ms();
        let opens_ms = opens_ms.to_string();
        let closes_ms = closes_ms.to_string();
        self.set(&[("opens_ms", &opens_ms), ("closes_ms", &closes_ms)]).await;
    }

    pub async fn create(&self, sale: &Sale) {
        self.delete(&self.hash).await;
        self.set_window(sale.window).await;
        for (field, number) in [
            ("stock", sale.stock),
            ("total", sale.total),
            ("epoch", sale.epoch),
            ("revision", 1),
            ("shards", SHARDS.into()),
        ] {
            self.set(&[(field, &number.to_string())]).await;
        }
        self.set(&[("state", sale.state.name())]).await;
        for shard in &self.shards {
            let _: i64 = self.app.redis(&["HSET", shard, SENTINEL, ""]).await;
        }
    }

    pub async fn delete(&self, key: &str) {
        let _: i64 = self.app.redis(&["DEL", key]).await;
    }
}
