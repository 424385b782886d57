//! A sale as Redis has it at one moment: units, buyers, and its terms.

use std::iter;

use redis::RedisResult;

use super::shards::Shards;
use crate::kit::redis::Redis;
use crate::kit::script::VariadicScript;
use crate::sale::ids::CouponId;
use crate::sale::keys::Keys;

/// What Redis has of a sale at one moment.
#[derive(Clone, Debug)]
pub struct Census {
    /// Users who hold a unit.
    pub buyers: i64,
    /// Shards of the buyers that are gone, with whoever was in them.
    pub shards_missing: i64,
    /// Units on offer; this and all that follows is missing if the sale is.
    pub total: Option<i64>,
    /// Units left.
    pub stock: Option<i64>,
    /// Whether it can be claimed.
    pub state: Option<String>,
    /// Last change that has reached it.
    pub revision: Option<i64>,
    /// Approved state of Redis that it belongs to.
    pub epoch: Option<i64>,
    /// Start of the window.
    pub opens_ms: Option<i64>,
    /// End of the window.
    pub closes_ms: Option<i64>,
}

/// Counts one sale in Redis.
///
/// # Errors
///
/// When Redis doesn't answer.
pub async fn census(redis: &Redis, keys: &Keys, coupon: CouponId) -> RedisResult<Census> {
    type Number = Option<i64>;
    type Reply = (i64, i64, Number, Number, Option<String>, Number, Number, Number, Number);
    let script = VariadicScript::new(include_str!("../../../lua/census.lua"));
    // As long as Redis holds the sale, their number doesn't change.
    let shards = super::shards(redis, keys, coupon).await?.unwrap_or(Shards::ONE);
    let shards = shards.all().map(|shard| keys.buyers(coupon, shard));
    let names: Vec<String> = iter::once(keys.coupon(coupon)).chain(shards).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let reply: Reply = script.run(&*redis.link().await?, &names, &[] as &[&str]).await?;
    let (buyers, shards_missing, total, stock, state, revision, epoch, opens_ms, closes_ms) = reply;
    Ok(Census { buyers, shards_missing, total, stock, state, revision, epoch, opens_ms, closes_ms })
}

impl Census {
    /// Whether total = stock left + buyers, and all of them are there.
    pub fn is_conserved(&self) -> bool {
        let adds_up = |(total, stock)| total == stock + self.buyers;
        self.shards_missing == 0 && self.total.zip(self.stock).is_some_and(adds_up)
    }
}
