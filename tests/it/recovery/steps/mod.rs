//! The steps of a recovery, file by file: sales or lanes that differ in one fact are recovered by one pass.

// Sales that are taken over, and sales that are not.
mod damage;

// Sales built from Postgres.
mod build;

// Buyers that only Redis knows.
mod harvest;

// Lists of unpaid orders.
mod unpaid;

// One recovery of each of some lanes.
mod lane;

// Looks at the lanes, one by one and while others are recovered.
mod keeper;

// Dead letters that are tried again.
mod retry;

// A Redis that refuses one command.
mod refused;

// Words and numbers for an operator.
mod told;

// A server that is not the approved one any more.
mod approved;

// Statements and commands that a recovery does without.
mod costs;

use std::sync::LazyLock;

use flash_sale::sale::Failure;
use flash_sale::sale::ids::CouponId;
use private_servers::testing::RedisProxy;
use tokio::task::JoinSet;

use crate::faults::recovery::{keep, sell};
use crate::support::buyers::FIRST_ORDER_BY_HAND as BY_HAND;
use crate::support::played::hash;
use crate::support::{Bounded, TestApp, bounded, eventually};

/// Words of the statement that reads the states of all lanes.
const READS_LANES: &str = "replication_id, harvests FROM lanes ORDER BY lane";

/// The script that takes over a sale that Redis has kept.
static ADOPT: LazyLock<String> =
    LazyLock::new(|| hash(include_str!("../../../../lua/adopt_sale.lua")));

/// The script that makes Redis use a sale that has been built.
pub(super) static SWITCH: LazyLock<String> =
    LazyLock::new(|| hash(include_str!("../../../../lua/switch_sale.lua")));

/// So many sales of nine units, by lane and age. Users 1 and 2 have an order of each, and the beats are noted.
pub async fn sold_to_two<const N: usize>(app: &TestApp) -> [CouponId; N] {
    let mut sales = Vec::new();
    for _ in 0..N {
        let coupon = app.create_flash(9).await;
        sell(app, coupon, 1..=2).await;
        sales.push(coupon);
    }
    sales.sort_by_key(|coupon| (coupon.lane(), *coupon));
    app.write_orders().await;
    keep(app).await;
    sales.try_into().expect("so many")
}

/// All lanes are closed now, as by a keeper that died right after.
pub async fn close_lanes(app: &TestApp) {
    app.execute(
        "UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x', epoch = epoch + 1",
    )
    .await;
}

/// No process keeps the lanes, so that the next one that looks does.
async fn no_process_keeps(app: &TestApp) {
    app.execute("UPDATE lane_keeper SET until = '1970-01-01T00:00:00Z'").await;
}

/// The fate of a sale that is open in the epoch of its lane: kept or built, units left, and buyers.
pub async fn fate(app: &TestApp, coupon: CouponId) -> String {
    let lane = coupon.lane();
    let epoch = app.number(&format!("SELECT epoch FROM lanes WHERE lane = {lane}")).await;
    let of_lane: Vec<String> =
        app.redis(&["HMGET", &app.keys().lane(lane), "epoch", "state"]).await;
    let [state, of_sale] = app.in_redis(coupon, ["state", "epoch"]).await;
    assert_eq!((&*of_lane[1], &*state), ("open", "active"), "{coupon}");
    assert_eq!((of_lane[0].clone(), of_sale), (epoch.to_string(), epoch.to_string()), "{coupon}");
    let is_built = app.shards(coupon).await.generation() == epoch;
    let buyers: Vec<i64> = app.buyers(coupon).await.into_keys().collect();
    let word = if is_built { "built" } else { "kept" };
    format!("{word} {} {buyers:?}", app.stock(coupon).await)
}

/// The stock that Redis has of a sale is no number.
pub async fn damage(app: &TestApp, coupon: CouponId) {
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "stock", "junk"]).await;
}

/// Units come to a sale in Redis, or go.
async fn add_stock(app: &TestApp, coupon: CouponId, units: i64) {
    let key = app.keys().coupon(coupon);
    let _: i64 = app.redis(&["HINCRBY", &key, "stock", &units.to_string()]).await;
}

/// Redis has promised this user a unit, by this order.
async fn promise_in_redis(app: &TestApp, coupon: CouponId, user: i64, order: i64) {
    app.set_buyer(coupon, user, order).await;
    add_stock(app, coupon, -1).await;
}

/// A dead letter of this user and order, with these further columns.
async fn write_letter(
    app: &TestApp,
    coupon: CouponId,
    (user, order): (i64, i64),
    (columns, values): (&str, &str),
) {
    app.execute(&format!(
        "INSERT INTO dead_letters (lane, epoch, entry_id, payload, reason, detail, coupon_id, user_id, order_id {columns})
         VALUES ({}, 1, '{order}-{user}', '{{}}', 'oversold', 'x', {coupon}, {user}, {order} {values})",
        coupon.lane()
    ))
    .await;
}

/// Columns of the recoveries that have opened a lane since the lanes were closed, by lane.
async fn outcomes(app: &TestApp, columns: &str) -> Vec<String> {
    app.texts(&format!(
        "SELECT concat_ws(' ', {columns}) FROM recoveries JOIN lanes USING (lane, epoch)
         WHERE opened_at IS NOT NULL ORDER BY lane"
    ))
    .await
}

/// A pass of another process that keeps the lanes and has its Redis behind this proxy, up to a command that is held back.
async fn pass_up_to_command(app: &TestApp, proxy: &RedisProxy) -> Pass {
    let other = app.another_instance_behind(proxy).await;
    no_process_keeps(app).await;
    let before = proxy.held();
    proxy.hold();
    let mut pass = JoinSet::new();
    pass.spawn(async move { other.keeper.pass().bounded().await });
    eventually("the command is held back", async || proxy.held() > before).await;
    pass
}

/// A pass that goes on.
type Pass = JoinSet<Result<(), Failure>>;

/// The end of a pass, once nothing is held back.
async fn end_of(mut pass: Pass, proxy: &RedisProxy) -> Result<(), Failure> {
    proxy.release();
    let ended = bounded("the end of the pass", pass.join_next()).await;
    ended.expect("it was begun").expect("it ends")
}
