//! Contents of both stores.

use std::collections::BTreeMap;
use std::path::Path;

use flash_sale::store::ids::{CouponId, Lane};
use flash_sale::store::keys::Keys;
use redis::RedisResult;
use serde::Deserialize;
use sqlx::types::Json;

use crate::clients::Created;
use crate::facts::{LaneFacts, Letter, Lost, RecoveryRow, RedisSale, Return, Row, SaleFacts};
use crate::world::{Installation, PREFIX, RedisNode, answered};

/// Lanes of the installation.
pub const LANES: i32 = 2;
/// Consumer group of the workers.
pub const GROUP: &str = "order-writers";

/// Reads a sale at one moment: its hash and all shards of its buyers. Names are built here, because this server is no
/// cluster. Replies total, stock, shards that are missing, and then users and orders.
const READ_SALE: &str = "
    local sale = redis.call('HMGET', KEYS[1], 'total', 'stock', 'shards')
    if not sale[1] then return {} end
    local count, version = string.match(sale[3], '^(%d+)@?(%d*)$')
    local start = ARGV[1] .. (version ~= '' and version .. ':' or '')
    local reply, missing = { sale[1], sale[2], '0' }, 0
    for shard = 0, count - 1 do
        local fields = redis.call('HGETALL', start .. shard)
        local has_sentinel = false
        for i = 1, #fields, 2 do
            if fields[i] == '-' then has_sentinel = true
            else table.insert(reply, fields[i]) table.insert(reply, fields[i + 1]) end
        end
        if not has_sentinel then missing = missing + 1 end
    end
    reply[3] = tostring(missing)
    return reply";

/// Keys of the installation.
pub fn keys() -> Keys {
    Keys::new(PREFIX)
}

/// A sale in Redis at one moment; `None` if it is not there.
pub async fn redis_sale(socket: &Path, coupon: i64) -> anyhow::Result<Option<RedisSale>> {
    let id: CouponId = coupon.to_string().parse()?;
    let hash = keys().coupon(id);
    let shard = keys().buyers(id, 0);
    let start = shard.trim_end_matches('0');
    let words = ["EVAL", READ_SALE, "1", hash.as_str(), start];
    let reply: Vec<String> = answered(socket, &words).await?;
    let [total, stock, missing, buyers @ ..] = reply.as_slice() else { return Ok(None) };
    let mut sale = RedisSale {
        total: total.parse()?,
        stock: stock.parse()?,
        shards_missing: missing.parse()?,
        buyers: BTreeMap::new(),
    };
    for pair in buyers.chunks_exact(2) {
        sale.buyers.insert(pair[0].parse()?, pair[1].parse()?);
    }
    Ok(Some(sale))
}

/// Key of the first shard of the buyers of a sale.
pub async fn a_shard(installation: &Installation, coupon: i64) -> anyhow::Result<String> {
    let id: CouponId = coupon.to_string().parse()?;
    let socket = installation.redis.lock().await.socket();
    let shards: String = answered(&socket, &["HGET", &keys().coupon(id), "shards"]).await?;
    let version = shards.split_once('@').map_or("0", |(_, version)| version);
    Ok(keys().buyers_of(id, version.parse()?, 0))
}

/// The sales, as both stores have them.
pub async fn sales(
    installation: &Installation,
    created: &[Created],
) -> anyhow::Result<Vec<SaleFacts>> {
    let redis = installation.redis.lock().await;
    let mut sales = Vec::new();
    for Created { coupon, total: first_total } in created {
        let (total, sold): (i64, i64) =
            sqlx::query_as("SELECT total, sold FROM flash_sales WHERE coupon_id = $1")
                .bind(coupon)
                .fetch_one(&installation.pool)
                .await?;
        let in_redis = redis_sale(&redis.socket(), *coupon).await?;
        sales.push(SaleFacts {
            coupon: *coupon,
            first_total: *first_total,
            total,
            sold,
            redis: in_redis,
        });
    }
    Ok(sales)
}

/// The rows of `orders`.
pub async fn rows(installation: &Installation) -> anyhow::Result<Vec<Row>> {
    let rows: Vec<(i64, i64, i64, bool, i64)> = sqlx::query_as(
        "SELECT id, coupon_id, user_id, is_live(status), (extract(epoch FROM created_at) * 1000)::bigint FROM orders",
    )
    .fetch_all(&installation.pool)
    .await?;
    let time = &installation.time;
    let row = |(order, coupon, user, is_live, created)| {
        let created = time.of_epoch_ms(created);
        Row { order, coupon, user, is_live, created }
    };
    Ok(rows.into_iter().map(row).collect())
}

/// The rows of `stock_returns` that give a unit back.
pub async fn returns(installation: &Installation) -> anyhow::Result<Vec<Return>> {
    let rows: Vec<(i64, i64, i64, Option<i64>)> = sqlx::query_as(
        "SELECT order_id, coupon_id, user_id, (extract(epoch FROM done_at) * 1000)::bigint
         FROM stock_returns WHERE what = 'unit'",
    )
    .fetch_all(&installation.pool)
    .await?;
    let time = &installation.time;
    let row = |(order, coupon, user, done): (i64, i64, i64, Option<i64>)| {
        let done = done.map(|done| time.of_epoch_ms(done));
        Return { order, coupon, user, done }
    };
    Ok(rows.into_iter().map(row).collect())
}

/// The rows of `dead_letters`.
pub async fn letters(installation: &Installation) -> anyhow::Result<Vec<Letter>> {
    type Found = (String, Option<i64>, Option<i64>, Option<i64>, bool);
    let rows: Vec<Found> = sqlx::query_as(
        "SELECT reason, coupon_id, user_id, order_id, resolved_at IS NULL FROM dead_letters",
    )
    .fetch_all(&installation.pool)
    .await?;
    let row = |(reason, coupon, user, order, is_open): Found| Letter {
        reason,
        claim: coupon.zip(user).zip(order).map(|((coupon, user), order)| (coupon, user, order)),
        is_open,
    };
    Ok(rows.into_iter().map(row).collect())
}

/// A lost claim as the service writes it.
#[derive(Deserialize)]
struct LostText {
    coupon_id: String,
    user_id: String,
    order_id: String,
    reason: String,
}

/// The rows of `recoveries`.
pub async fn recoveries(installation: &Installation) -> anyhow::Result<Vec<RecoveryRow>> {
    type Found = (i32, i64, Option<i64>, Option<i64>, Json<Vec<LostText>>);
    let rows: Vec<Found> = sqlx::query_as(
        "SELECT lane, (extract(epoch FROM closed_at) * 1000)::bigint,
                (extract(epoch FROM opened_at) * 1000)::bigint, absent, lost
         FROM recoveries ORDER BY id",
    )
    .fetch_all(&installation.pool)
    .await?;
    let time = &installation.time;
    let mut recoveries = Vec::new();
    for (lane, closed, opened, absent, Json(lost)) in rows {
        let lost = lost.into_iter().map(|text| {
            anyhow::Ok(Lost {
                coupon: text.coupon_id.parse()?,
                user: text.user_id.parse()?,
                order: text.order_id.parse()?,
                reason: text.reason,
            })
        });
        recoveries.push(RecoveryRow {
            lane: i64::from(lane),
            closed: time.of_epoch_ms(closed),
            opened: opened.map(|opened| time.of_epoch_ms(opened)),
            absent: absent.unwrap_or(0),
            lost: lost.collect::<anyhow::Result<_>>()?,
        });
    }
    Ok(recoveries)
}

/// The lanes, as both stores have them.
pub async fn lanes(installation: &Installation) -> anyhow::Result<Vec<LaneFacts>> {
    let rows: Vec<(i32, i64, String)> =
        sqlx::query_as("SELECT lane, epoch, state FROM lanes ORDER BY lane")
            .fetch_all(&installation.pool)
            .await?;
    let redis = installation.redis.lock().await;
    let mut lanes = Vec::new();
    for lane in Lane::all(LANES) {
        let row = rows.iter().find(|(number, ..)| *number == lane.get());
        let postgres = row.map(|(_, epoch, state)| (*epoch, state.clone())).unwrap_or_default();
        let facts = lane_in_redis(redis.master(), lane).await?;
        lanes.push(LaneFacts { lane: i64::from(lane.get()), postgres, ..facts });
    }
    Ok(lanes)
}

async fn lane_in_redis(node: &RedisNode, lane: Lane) -> anyhow::Result<LaneFacts> {
    let hash = keys().lane(lane);
    let fields = ["epoch", "state", "accepted", "written"];
    let found: Vec<Option<String>> =
        node.ask(&[&["HMGET", hash.as_str()], fields.as_slice()].concat()).await?;
    let text = |index: usize| found.get(index).cloned().flatten();
    let number = |index: usize| text(index).and_then(|text| text.parse().ok()).unwrap_or(0);
    let log = keys().log(lane);
    let (pending, pending_deleted) = pending(node, &log).await;
    Ok(LaneFacts {
        redis: (number(0), text(1).unwrap_or_default()),
        promised: number(2),
        written: number(3),
        pending,
        pending_deleted,
        unread: unread(node, &log).await,
        ..LaneFacts::default()
    })
}

/// Entries delivered and not acknowledged, and those of them that are not in the log. A log that is not there has none.
async fn pending(node: &RedisNode, log: &str) -> (i64, Vec<String>) {
    const PAGE: &str = "1000";
    type Entry = (String, String, i64, i64);
    let page: RedisResult<Vec<Entry>> = node.ask(&["XPENDING", log, GROUP, "-", "+", PAGE]).await;
    let page = page.unwrap_or_default();
    let mut deleted = Vec::new();
    for (id, ..) in &page {
        let found: RedisResult<Vec<redis::Value>> = node.ask(&["XRANGE", log, id, id]).await;
        if found.is_ok_and(|found| found.is_empty()) {
            deleted.push(id.clone());
        }
    }
    (i64::try_from(page.len()).unwrap_or(i64::MAX), deleted)
}

/// Entries behind the last one that was delivered. A log that is not there has none.
async fn unread(node: &RedisNode, log: &str) -> i64 {
    let groups: RedisResult<Vec<BTreeMap<String, redis::Value>>> =
        node.ask(&["XINFO", "GROUPS", log]).await;
    let group = groups.unwrap_or_default().into_iter().find(|group| {
        let name = group.get("name").cloned();
        name.and_then(|name| redis::from_redis_value::<String>(name).ok()).as_deref() == Some(GROUP)
    });
    let last = group.and_then(|group| group.get("last-delivered-id").cloned());
    let last: Option<String> = last.and_then(|last| redis::from_redis_value(last).ok());
    let from = last.map_or_else(|| "-".to_owned(), |last| format!("({last}"));
    let entries: RedisResult<Vec<redis::Value>> = node.ask(&["XRANGE", log, &from, "+"]).await;
    entries.map_or(0, |entries| i64::try_from(entries.len()).unwrap_or(i64::MAX))
}
