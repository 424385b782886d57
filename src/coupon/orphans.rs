//! Sales that only Redis has: Postgres has noted no load of them, or another one. Then Postgres went back in time, or
//! is a copy.

use futures_util::future::join_all;
use redis::RedisResult;
use sqlx::PgConnection;

use crate::coupon::buyers;
use crate::store::ids::CouponId;
use crate::store::keys::Keys;
use crate::store::redis::{Redis, is_data_error};
use crate::store::{Failure, Stores};

/// Keys that one step of SCAN looks at.
const KEYS_AT_A_TIME: usize = 1_000;

/// The orphans. A sale that is being loaded isn't one: Postgres notes its load a moment later.
///
/// # Errors
///
/// When a store doesn't answer.
pub async fn find(stores: &Stores) -> Result<Vec<CouponId>, Failure> {
    let Stores { pool, fleet, keys } = stores;
    let mut loads: Vec<(i64, String)> = Vec::new();
    for coupon in sales(stores).await? {
        let mut command = redis::cmd("HMGET");
        command.arg(keys.coupon(coupon)).arg("state").arg("load");
        match fleet.of(coupon.lane()).query::<(Option<String>, Option<String>)>(&command).await {
            Ok((Some(state), Some(load))) if state != "loading" => loads.push((coupon.get(), load)),
            Err(error) if !is_data_error(&error) => return Err(error.into()),
            _ => {}
        }
    }
    let (coupons, loads): (Vec<i64>, Vec<String>) = loads.into_iter().unzip();
    let orphans = sqlx::query_scalar!(
        r#"SELECT sale.coupon_id AS "coupon!: CouponId" FROM unnest($1::bigint[], $2::text[]) AS sale (coupon_id, load_id)
           WHERE NOT EXISTS (SELECT FROM flash_sales
                             WHERE flash_sales.coupon_id = sale.coupon_id AND flash_sales.load_id = sale.load_id)
           ORDER BY 1"#,
        &coupons,
        &loads,
    );
    Ok(orphans.fetch_all(pool).await?)
}

/// Removes the orphans with their buyers. Returns how many there were.
///
/// # Errors
///
/// When a store doesn't answer; a repeat removes the others.
pub async fn remove_all(stores: &Stores) -> Result<usize, Failure> {
    let Stores { fleet, keys, .. } = stores;
    let orphans = find(stores).await?;
    for coupon in &orphans {
        let redis = fleet.of(coupon.lane());
        let shards = match buyers::shards(redis, keys, *coupon).await {
            Err(error) if is_data_error(&error) => None,
            shards => shards?,
        };
        if let Some(shards) = shards {
            buyers::unlink(redis, keys, *coupon, shards).await?;
        }
        // Last, because it names the shards.
        redis.query::<()>(redis::cmd("UNLINK").arg(keys.coupon(*coupon))).await?;
    }
    Ok(orphans.len())
}

/// Sequence number of the newest coupon whose sale is in Redis; 0 without any. A server that doesn't answer holds up no
/// decision: its sales are found by the check of its lanes, once it is back.
///
/// # Errors
///
/// When none answers.
pub async fn highest_sale(stores: &Stores) -> RedisResult<i64> {
    let checks = stores.fleet.each().map(|redis| sales_of(redis, &stores.keys));
    let mut highest = None;
    let mut failed = Ok(0);
    for found in join_all(checks).await {
        match found {
            Ok(found) => {
                highest =
                    highest.max(Some(found.into_iter().map(CouponId::sequence).max().unwrap_or(0)))
            }
            Err(error) => failed = Err(error),
        }
    }
    highest.map_or(failed, Ok)
}

/// Raises the coupon sequence to this number, if it is lower.
pub async fn raise_sequence(connection: &mut PgConnection, number: i64) -> sqlx::Result<()> {
    sqlx::query_scalar!(
        "SELECT setval('coupon_sequence', $1) FROM coupon_sequence WHERE last_value < $1",
        number
    )
    .fetch_optional(connection)
    .await?;
    Ok(())
}

/// All sales in Redis that are on the server of their lane: older ones may be left elsewhere, from another list of
/// servers.
async fn sales(stores: &Stores) -> RedisResult<Vec<CouponId>> {
    let mut found = Vec::new();
    for (number, redis) in stores.fleet.each().enumerate() {
        let there = sales_of(redis, &stores.keys).await?;
        found.extend(there.into_iter().filter(|it| stores.fleet.number(it.lane()) == number));
    }
    Ok(found)
}

async fn sales_of(redis: &Redis, keys: &Keys) -> RedisResult<Vec<CouponId>> {
    let pattern = keys.all_coupons();
    let mut found = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let mut command = redis::cmd("SCAN");
        command.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(KEYS_AT_A_TIME);
        let (next, page): (String, Vec<String>) = redis.query(&command).await?;
        let id = |key: &String| key.rsplit(':').next()?.parse::<CouponId>().ok();
        found.extend(page.iter().filter_map(id));
        if next == "0" {
            found.sort();
            found.dedup();
            return Ok(found);
        }
        cursor = next;
    }
}
