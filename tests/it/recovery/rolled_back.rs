//! The memory of Redis goes back while a lane is recovered: to a moment of that recovery, with the life, the replication
//! ID and the connections of the server, as that of a machine does which is set back to a snapshot.
//! Recoveries that are broken off: the next one believes nothing that they have built.

use flash_sale::kit::postgres;
use flash_sale::sale::ids::CouponId;
use tokio::task::JoinSet;

use super::steps::SWITCH;
use crate::faults::recovery::{code, command, keep, sell, start};
use crate::support::{Bounded, TestApp, bounded, eventually, lane, proxy_before};

const LETTERS: &str = "SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL";
const LETTERS_WITH_UNIT: &str =
    "SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL AND holds_unit";

/// Begins the name of each key of the snapshot.
const KEPT: &str = "kept:";

/// Keeps all keys as they are now.
pub async fn keep_memory(app: &TestApp) {
    for key in app.redis::<Vec<String>>(&["KEYS", "*"]).await {
        let copied: i64 = app.redis(&["COPY", &key, &format!("{KEPT}{key}")]).await;
        assert_eq!(copied, 1);
    }
}

/// Redis has the keys that were kept, and no others.
pub async fn put_memory_back(app: &TestApp) {
    let (kept, now): (Vec<String>, Vec<String>) = app
        .redis::<Vec<String>>(&["KEYS", "*"])
        .await
        .into_iter()
        .partition(|key| key.starts_with(KEPT));
    for key in now {
        let _: i64 = app.redis(&["DEL", &key]).await;
    }
    for key in kept {
        let _: String = app.redis(&["RENAME", &key, &key[KEPT.len()..]]).await;
    }
}

#[tokio::test]
async fn a_memory_that_goes_back_behind_the_switch_of_a_sale_is_not_opened() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    sell(&app, coupon, 1..=6).await;
    app.write_orders().await;
    keep(&app).await;
    let shard = app.shard_of(coupon, 6).await;
    let _: i64 = app.redis(&["HDEL", &shard, "6"]).await;
    command(&app, &["recover", "--lane", "0"]).await;

    // The sentinel of the first new shard.
    let proxy = proxy_before(&app, "$1\r\n-\r\n$0").await;
    let other = app.another_instance_behind(&proxy).await;
    app.app.keeper.give_up().await;
    proxy.hold();
    let mut pass = JoinSet::new();
    pass.spawn(async move { other.keeper.pass().bounded().await.is_ok() });
    eventually("the shards are about to be filled", async || proxy.held() == 1).await;
    keep_memory(&app).await;
    let mut lock = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
    let rows =
        "SET LOCAL idle_in_transaction_session_timeout = 0; SELECT FROM lane_beats FOR UPDATE";
    sqlx::raw_sql(rows).execute(&mut *lock).await.expect("no other transaction has them");
    proxy.release();
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually("the lane is about to be opened", async || app.number(waiting).await > 0).await;
    put_memory_back(&app).await;
    lock.rollback().await.expect("Postgres answers");
    bounded("the end of the recovery", pass.join_next()).await;

    // The process that was cut off keeps the lanes no more.
    app.execute("UPDATE lane_keeper SET until = '1970-01-01T00:00:00Z'").await;
    app.recover().await;
    assert_eq!(code(&app, 6, coupon).await, (409, "already_claimed".to_owned()));
    sell(&app, coupon, 7..=10).await;
    assert_eq!(code(&app, 11, coupon).await, (410, "sold_out".to_owned()));
    app.write_orders().await;
}

/// A user whose order Redis has forgotten has claimed again, which became a dead letter; and the lane is closed. Returns
/// the coupon and that order.
async fn closed_after_a_second_claim(app: &TestApp) -> (CouponId, i64) {
    let coupon = app.create_flash(10).await;
    sell(app, coupon, 1..=6).await;
    app.write_orders().await;
    let forgotten = app.number("SELECT id FROM orders WHERE user_id = 6").await;
    let shard = app.shard_of(coupon, 6).await;
    let _: i64 = app.redis(&["HDEL", &shard, "6"]).await;
    let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", "1"]).await;
    sell(app, coupon, 6..=6).await;
    app.write_orders().await;
    assert_eq!(app.number(LETTERS).await, 1);
    keep(app).await;
    command(app, &["recover", "--lane", "0"]).await;
    app.app.keeper.give_up().await;
    (coupon, forgotten)
}

/// The process that was cut off keeps the lanes no more, and the order that was forgotten is cancelled.
async fn go_on(app: &TestApp, forgotten: i64) {
    assert_eq!(app.cancel(6, forgotten).await.status, 200);
    app.execute("UPDATE lane_keeper SET until = '1970-01-01T00:00:00Z'").await;
}

/// Of the ten units six are sold, one of them to user 6.
async fn assert_four_are_left(app: &TestApp, coupon: CouponId) {
    app.give_back().await;
    assert_eq!(code(app, 6, coupon).await, (409, "already_claimed".to_owned()));
    sell(app, coupon, 7..=10).await;
    assert_eq!(code(app, 11, coupon).await, (410, "sold_out".to_owned()));
    app.write_orders().await;
}

#[tokio::test]
async fn a_recovery_that_dies_before_the_switch_leaves_units_to_the_letters_that_redis_knows() {
    let (_server, app) = start(&[]).await;
    let (coupon, forgotten) = closed_after_a_second_claim(&app).await;
    let proxy = proxy_before(&app, &SWITCH).await;
    let other = app.another_instance_behind(&proxy).await;
    proxy.hold();
    let mut pass = JoinSet::new();
    pass.spawn(async move { other.keeper.pass().bounded().await.is_ok() });
    eventually("the sale is about to be switched", async || proxy.held() == 1).await;
    assert_eq!(app.number(LETTERS_WITH_UNIT).await, 0, "the user has an order");
    pass.shutdown().await;
    drop(proxy);

    go_on(&app, forgotten).await;
    app.recover().await;
    assert_eq!(app.number("SELECT sum(sales_kept)::bigint FROM recoveries").await, 1);
    assert_eq!(app.number(LETTERS_WITH_UNIT).await, 1, "its user is a buyer");
    assert_four_are_left(&app, coupon).await;
}

#[tokio::test]
async fn a_sale_that_a_recovery_has_built_and_not_opened_is_built_again() {
    let (_server, app) = start(&[]).await;
    let (coupon, forgotten) = closed_after_a_second_claim(&app).await;
    let proxy = proxy_before(&app, "UNLINK").await;
    let other = app.another_instance_behind(&proxy).await;
    proxy.hold();
    let mut pass = JoinSet::new();
    pass.spawn(async move { other.keeper.pass().bounded().await.is_ok() });
    eventually("the sale has been switched", async || proxy.held() == 1).await;
    pass.shutdown().await;
    drop(proxy);
    // An older log has the claims that were written once more.
    let log = app.log(lane());
    let _: String = app.redis(&["XGROUP", "SETID", &log, "order-writers", "0"]).await;

    go_on(&app, forgotten).await;
    // No worker has read the older log yet.
    let _ = bounded("the end of the pass", app.app.keeper.pass()).await;
    app.recover().await;
    app.write_orders().await;
    assert_four_are_left(&app, coupon).await;
}
