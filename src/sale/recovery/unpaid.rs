//! Users' lists of unpaid orders in a lane, built from Postgres.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use crate::sale::ids::{Lane, OrderId, UserId};
use crate::sale::{Failure, Stores};

/// Orders read at a time.
const PAGE: i64 = 1_000;

/// Builds the lists. Lists bound users only where `--unpaid-orders-max` is set; elsewhere there are none.
pub(super) async fn build(stores: &Stores, lane: Lane, bound: u32) -> Result<(), Failure> {
    let Stores { redis, keys, .. } = stores;
    let key = keys.unpaid(lane);
    redis.query::<i64>(redis::cmd("UNLINK").arg(&key)).await?;
    let mut after = None;
    while bound > 0
        && let Some((page, last)) = page(stores, lane, after).await?
    {
        after = Some(last);
        let mut lists: BTreeMap<UserId, Vec<OrderId>> = BTreeMap::new();
        for (user, order) in page {
            lists.entry(user).or_default().push(order);
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
    Ok(())
}

type Position = (DateTime<Utc>, OrderId);

/// Unpaid orders of flash coupons in this lane, oldest first, and the place of the last one that was read.
async fn page(
    stores: &Stores,
    lane: Lane,
    after: Option<Position>,
) -> Result<Option<(Vec<(UserId, OrderId)>, Position)>, Failure> {
    let rows = sqlx::query!(
        r#"SELECT id AS "order: OrderId", user_id AS "user: UserId", created_at,
                  (kind = 'flash' AND (coupon_id & 1023)::integer = $3) AS "here!"
           FROM orders
           WHERE status = 'unpaid' AND (created_at, id) > (coalesce($1, '-infinity'::timestamptz), $2)
           ORDER BY created_at, id LIMIT $4"#,
        after.map(|(created_at, _)| created_at),
        after.map_or(0, |(_, order)| order.get()),
        lane.get(),
        PAGE,
    )
    .fetch_all(&stores.pool)
    .await?;
    let Some(last) = rows.last().map(|row| (row.created_at, row.order)) else {
        return Ok(None);
    };
    let here = rows.into_iter().filter(|row| row.here).map(|row| (row.user, row.order));
    Ok(Some((here.collect(), last)))
}
