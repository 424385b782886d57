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
pub struct Census {
    /// Users who hold a unit.
    pub buyers: i64,
    /// Lost shards of the buyers.
    pub shards_missing: i64,
    /// Units on offer; this and all following fields are missing if the sale is.
    pub total: Option<i64>,
    /// Units left.
    pub stock: Option<i64>,
    /// Whether the sale can be claimed.
    pub state: Option<String>,
    /// Revision that Redis has.
    pub revision: Option<i64>,
    /// Epoch of the sale.
    pub epoch: Option<i64>,
    /// Start of the window.
    pub opens_ms: Option<i64>,
    /// End of the window.
    pub closes_ms: Option<i64>,
    /// Count of additions; missing also before the first one.
    pub returns: Option<i64>,
    /// Id of the load that wrote the sale.
    pub load: Option<String>,
}

/// Counts one sale in Redis.
pub async fn census(redis: &Redis, keys: &Keys, coupon: CouponId) -> RedisResult<Census> {
    type Number = Option<i64>;
    type Word = Option<String>;
    type Reply = (i64, i64, Number, Number, Word, Number, Number, Number, Number, Number, Word);
    let script = VariadicScript::new(include_str!("../../../lua/census.lua"));
    // As long as Redis holds the sale, the number of shards doesn't change.
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
    Ok(Census {
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

impl Census {
    /// Whether total = stock left + buyers, and all of them are there.
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
            let census = Census {
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
            assert_eq!(census.is_conserved(), is_conserved, "{census:?}");
        }
    }
}
