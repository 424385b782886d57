//! A sale as Redis has it at one moment: units, buyers, and its terms.

use std::iter;

use redis::RedisResult;

use super::shards::Shards;
use crate::store::ids::CouponId;
use crate::store::keys::Keys;
use crate::store::redis::Redis;
use crate::store::script::VariadicScript;

/// Facts about a sale in Redis at one moment.
#[derive(Clone, Debug)]
pub struct SaleCount {
    pub buyers: i64,
    /// Shards that Redis has lost.
    pub shards_missing: i64,
    /// Units on offer; this and all following fields are `None` if the sale is missing.
    pub total: Option<i64>,
    pub stock: Option<i64>,
    pub state: Option<String>,
    pub revision: Option<i64>,
    pub epoch: Option<i64>,
    pub opens_ms: Option<i64>,
    /// Not part of the window.
    pub closes_ms: Option<i64>,
    /// How often units were added; `None` also before the first time.
    pub returns: Option<i64>,
    /// Id of the load that wrote the sale.
    pub load: Option<String>,
}

pub async fn count_sale(redis: &Redis, keys: &Keys, coupon: CouponId) -> RedisResult<SaleCount> {
    type Number = Option<i64>;
    type Word = Option<String>;
    type Reply = (i64, i64, Number, Number, Word, Number, Number, Number, Number, Number, Word);
    let script = VariadicScript::new(include_str!("../../../lua/count_sale.lua"));
    // As long as Redis holds the sale, the number of its shards doesn't change.
    let shards = super::shards(redis, keys, coupon).await?.unwrap_or(Shards::ONE);
    let shards = shards.all().map(|shard| shards.key(keys, coupon, shard));
    let names: Vec<String> = iter::once(keys.coupon(coupon)).chain(shards).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let reply: Reply = script.run(&*redis.link().await?, &names, &[] as &[&str]).await?;
    let (
        buyers,
        shards_missing,
        total,
        stock,
        state,
        revision,
        epoch,
        opens_ms,
        closes_ms,
        returns,
        load,
    ) = reply;
    Ok(SaleCount {
        buyers,
        shards_missing,
        total,
        stock,
        state,
        revision,
        epoch,
        opens_ms,
        closes_ms,
        returns,
        load,
    })
}

impl SaleCount {
    /// Whether total = stock + buyers, and no shard is missing.
    pub fn is_conserved(&self) -> bool {
        let adds_up = |(total, stock)| total == stock + self.buyers;
        self.shards_missing == 0 && self.total.zip(self.stock).is_some_and(adds_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sale_is_conserved_if_its_total_is_stock_and_buyers_and_no_shard_is_missing() {
        for (total, stock, buyers, shards_missing, is_conserved) in [
            (Some(9), Some(5), 4, 0, true),
            (Some(9), Some(9), 0, 0, true),
            (Some(9), Some(5), 3, 0, false),
            (Some(9), Some(5), 5, 0, false),
            (Some(9), Some(5), 4, 1, false),
            (None, Some(5), 4, 0, false),
            (Some(9), None, 4, 0, false),
            (None, None, 0, 0, false),
        ] {
            let count = SaleCount {
                buyers,
                shards_missing,
                total,
                stock,
                state: None,
                revision: None,
                epoch: None,
                opens_ms: None,
                closes_ms: None,
                returns: None,
                load: None,
            };
            assert_eq!(count.is_conserved(), is_conserved, "{count:?}");
        }
    }
}
