//! The buyers of a sale, as Redis has them: found, told, read page by page, and removed.

use std::collections::BTreeSet;

use flash_sale::kit::redis::Redis;
use flash_sale::sale::Failure;
use flash_sale::sale::buyers::shards::{SENTINEL, Shards};
use flash_sale::sale::buyers::{Pages, can_tell, orders_of, shards, unlink};
use flash_sale::sale::ids::{CouponId, OrderId};
use flash_sale::sale::keys::Keys;
use uuid::Uuid;

use crate::support::{shared, user};

/// A sale under a prefix of its own.
pub struct Sale {
    pub redis: Redis,
    pub keys: Keys,
    pub coupon: CouponId,
}

impl Sale {
    /// Not in Redis.
    pub fn absent() -> Self {
        Self::on(&shared().redis_url)
    }

    /// The same on another Redis.
    pub fn on(url: &str) -> Self {
        let redis = Redis::new(url).expect("a URL");
        let keys = Keys::new(&Uuid::new_v4().simple().to_string());
        Self { redis, keys, coupon: CouponId::compose(5, 1) }
    }

    /// With shards of so many buyers each, whose ids are 1, 2 ... Orders are a thousand times the ids.
    async fn with_shards(sizes: impl IntoIterator<Item = i64>) -> Self {
        let sale = Self::absent();
        let mut next = 1;
        let mut count = 0;
        for size in sizes {
            let buyers = next..next + size;
            sale.set_buyers(0, count, buyers).await;
            next += size;
            count += 1;
        }
        sale.set(&[("shards", &count.to_string())]).await;
        sale
    }

    /// Writes fields of the sale.
    pub async fn set(&self, fields: &[(&str, &str)]) {
        if fields.is_empty() {
            return;
        }
        let mut command = redis::cmd("HSET");
        command.arg(self.keys.coupon(self.coupon)).arg(fields);
        self.redis.query::<i64>(&command).await.expect("Redis answers");
    }

    /// Makes a shard with these buyers.
    pub async fn set_buyers(&self, generation: i64, shard: u32, ids: impl Iterator<Item = i64>) {
        let mut command = redis::cmd("HSET");
        command.arg(self.keys.buyers_of(self.coupon, generation, shard)).arg(SENTINEL).arg("");
        for id in ids {
            command.arg(id).arg(1_000 * id);
        }
        self.redis.query::<i64>(&command).await.expect("Redis answers");
    }

    async fn has_shard(&self, generation: i64, shard: u32) -> bool {
        let mut command = redis::cmd("EXISTS");
        command.arg(self.keys.buyers_of(self.coupon, generation, shard));
        self.redis.query(&command).await.expect("Redis answers")
    }

    /// Sizes of the pages, and the buyers on them.
    async fn pages(&self) -> Result<(Vec<usize>, BTreeSet<i64>), Failure> {
        let mut pages = Pages::begin(&self.redis, &self.keys, self.coupon).await?;
        let (mut sizes, mut ids) = (Vec::new(), BTreeSet::new());
        while let Some(page) = pages.next().await? {
            sizes.push(page.len());
            assert!(sizes.len() < 1_000, "the pages have an end");
            for (user, order) in page {
                assert_eq!(order.get(), 1_000 * user.get());
                ids.insert(user.get());
            }
        }
        Ok((sizes, ids))
    }
}

#[tokio::test]
async fn shards_are_those_that_the_sale_names() {
    let sale = Sale::absent();
    let named = async || shards(&sale.redis, &sale.keys, sale.coupon).await;
    assert_eq!(named().await.expect("Redis answers"), None);
    for (text, expected) in
        [("157", Shards::new(157)), ("9@4", Shards::new(9).map(|it| it.of_generation(4)))]
    {
        sale.set(&[("shards", text)]).await;
        assert_eq!(named().await.expect("Redis answers"), expected);
    }
    sale.set(&[("shards", "x")]).await;
    assert!(named().await.is_err());
}

#[tokio::test]
async fn can_tell_whether_the_shard_of_a_user_is_there() {
    let sale = Sale::absent();
    let tells = async |id| can_tell(&sale.redis, &sale.keys, sale.coupon, user(id)).await;
    assert!(!tells(1).await.expect("Redis answers"), "no sale");
    sale.set(&[("shards", "157@4")]).await;
    // A user's shard is fixed for ever.
    for (generation, shard, is_there) in [(0, 53, false), (4, 134, false), (4, 53, true)] {
        sale.set_buyers(generation, shard, std::iter::empty()).await;
        assert_eq!(tells(1).await.expect("Redis answers"), is_there, "{generation} {shard}");
    }
    let shard = sale.keys.buyers_of(sale.coupon, 4, 53);
    let mut command = redis::cmd("HSET");
    sale.redis.query::<i64>(command.arg(&shard).arg("1").arg("1000")).await.expect("it answers");
    let mut command = redis::cmd("HDEL");
    sale.redis.query::<i64>(command.arg(&shard).arg(SENTINEL)).await.expect("it answers");
    assert!(!tells(1).await.expect("Redis answers"), "a shard that lacks its sentinel");
}

#[tokio::test]
async fn orders_of_users_are_told_in_their_order() {
    let sale = Sale::absent();
    let orders = async |ids: &[i64]| {
        let users: Vec<_> = ids.iter().map(|id| user(*id)).collect();
        let orders = orders_of(&sale.redis, &sale.keys, sale.coupon, users.into_iter()).await?;
        Ok::<_, Failure>(orders.into_iter().map(|it| it.map(OrderId::get)).collect::<Vec<_>>())
    };
    assert!(orders(&[]).await.expect("no question").is_empty());
    assert_eq!(orders(&[1, 2]).await.expect("Redis answers"), [None, None], "no sale");
    sale.set(&[("shards", "157")]).await;
    assert!(orders(&[]).await.expect("no question").is_empty());
    sale.set_buyers(0, 53, [1].into_iter()).await;
    sale.set_buyers(0, 134, [2, 3].into_iter()).await;
    let told = orders(&[2, 3, 1, 2]).await.expect("Redis answers");
    assert_eq!(told, [Some(2_000), None, Some(1_000), Some(2_000)], "3 has another shard");
    let mut command = redis::cmd("HSET");
    let shard = sale.keys.buyers(sale.coupon, 53);
    sale.redis.query::<i64>(command.arg(&shard).arg("1").arg("x")).await.expect("it answers");
    let told = orders(&[2, 1]).await;
    assert!(matches!(&told, Err(Failure::UnknownReply(text)) if text == "x"), "{told:?}");
}

#[tokio::test]
async fn unlink_removes_the_shards_of_one_generation() {
    let sale = Sale::absent();
    for (generation, shard) in [(4, 0), (4, 1_000), (4, 1_001), (0, 0), (5, 0)] {
        sale.set_buyers(generation, shard, std::iter::empty()).await;
    }
    let shards = Shards::new(1_001).expect("some").of_generation(4);
    unlink(&sale.redis, &sale.keys, sale.coupon, shards).await.expect("Redis answers");
    for (generation, shard, stays) in
        [(4, 0, false), (4, 1_000, false), (4, 1_001, true), (0, 0, true), (5, 0, true)]
    {
        assert_eq!(sale.has_shard(generation, shard).await, stays, "{generation} {shard}");
    }
}

#[tokio::test]
async fn pages_have_more_shards_the_fewer_buyers_are_in_them() {
    let absent = Sale::absent();
    assert_eq!(absent.pages().await.expect("Redis answers"), (vec![], BTreeSet::new()));
    for (sizes, expected) in [
        (vec![1; 800], vec![32, 64, 128, 256, 256, 64]),
        (vec![0, 3, 0], vec![3]),
        // 500 buyers are not few, and 1,000 are not many.
        ([vec![16; 20], vec![15; 12], vec![1; 40]].concat(), vec![500, 32, 8]),
        ([vec![16; 19], vec![15; 13], vec![1; 40]].concat(), vec![499, 40]),
        (vec![20; 100], vec![640, 640, 640, 80]),
        ([vec![32; 8], vec![31; 24], vec![1; 40]].concat(), vec![1_000, 32, 8]),
        ([vec![32; 9], vec![31; 23], vec![1; 40]].concat(), vec![1_001, 16, 24]),
        (vec![40; 60], vec![1_280, 640, 480]),
    ] {
        let buyers: i64 = sizes.iter().sum();
        let (pages, ids) = Sale::with_shards(sizes).await.pages().await.expect("Redis answers");
        assert_eq!(pages, expected);
        assert_eq!(ids, (1..=buyers).collect(), "each buyer is on a page");
    }
}

/// Such a shard takes more than one call. A page has about a thousand buyers, so that no other client waits long.
#[tokio::test]
async fn pages_of_large_shards_have_a_thousand_buyers() {
    for shards in [1, 4, 20] {
        let sale = Sale::with_shards(vec![3_000; shards]).await;
        let (pages, ids) = sale.pages().await.expect("Redis answers");
        assert_eq!(ids, (1..=3_000 * shards as i64).collect(), "each buyer is on a page");
        assert!((990..1_300).contains(&pages[0]), "{pages:?}");
    }
}

#[tokio::test]
async fn pages_with_a_buyer_who_is_no_id_are_a_failure() {
    for (field, value) in [("x", "1000"), ("1", "x")] {
        let sale = Sale::with_shards([3]).await;
        let mut command = redis::cmd("HSET");
        command.arg(sale.keys.buyers(sale.coupon, 0)).arg(field).arg(value);
        sale.redis.query::<i64>(&command).await.expect("Redis answers");
        let told = sale.pages().await;
        let text = format!("{field} {value}");
        assert!(matches!(&told, Err(Failure::UnknownReply(it)) if *it == text), "{told:?}");
    }
}
