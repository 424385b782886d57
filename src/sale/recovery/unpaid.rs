//! Users' lists of unpaid orders in a lane, built from Postgres.

use std::collections::BTreeMap;

use crate::sale::ids::{Lane, OrderId, UserId};
use crate::sale::order::live;
use crate::sale::{Failure, Stores};

/// Builds the lists. Lists bound users only where `--unpaid-orders-max` is set; elsewhere there are none.
pub(super) async fn build(stores: &Stores, lane: Lane, bound: u32) -> Result<(), Failure> {
    let Stores { redis, keys, .. } = stores;
    let key = keys.unpaid(lane);
    redis.query::<i64>(redis::cmd("UNLINK").arg(&key)).await?;
    if bound == 0 {
        return Ok(());
    }
    let mut after = None;
    loop {
        let page = live::unpaid_page(&stores.pool, after).await?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = Some(last.position());
        let mut lists: BTreeMap<UserId, Vec<OrderId>> = BTreeMap::new();
        for unpaid in page.iter().filter(|unpaid| unpaid.coupon.lane() == lane) {
            lists.entry(unpaid.user).or_default().push(unpaid.order);
        }
        if lists.is_empty() {
            continue;
        }
        let mut read = redis::cmd("HMGET");
        read.arg(&key);
        for user in lists.keys() {
            read.arg(user.get());
        }
        let present: Vec<Option<String>> = redis.query(&read).await?;
        let mut write = redis::cmd("HSET");
        write.arg(&key);
        for ((user, orders), present) in lists.into_iter().zip(present) {
            let orders = orders.into_iter().map(|order| order.to_string());
            let list: Vec<String> = present.into_iter().chain(orders).collect();
            write.arg(user.get()).arg(list.join(" "));
        }
        redis.query::<i64>(&write).await?;
    }
}
