//! The lists of unpaid orders are built beside those in use, and switched under the epoch of their recovery only.

use std::collections::BTreeMap;
use std::sync::Arc;

use flash_sale::app::App;
use private_servers::testing::{RedisProxy, RedisServer};
use tokio::task::JoinSet;

use crate::faults::recovery::{keep, sell, start_with};
use crate::support::{Bounded, TestApp, bounded, eventually, lane, proxy_before};

/// A user may hold five unpaid orders; each of users 1 to 3 holds one.
async fn bounded_app() -> (RedisServer, TestApp) {
    let (server, app) = start_with(&["--unpaid-orders-max", "5"]).await;
    let coupon = app.create_flash(20).await;
    sell(&app, coupon, 1..=3).await;
    app.write_orders().await;
    keep(&app).await;
    (server, app)
}

async fn lists(app: &TestApp) -> BTreeMap<String, String> {
    app.redis(&["HGETALL", &app.keys().unpaid(lane())]).await
}

/// The users with a list.
async fn listed(app: &TestApp) -> Vec<String> {
    lists(app).await.into_keys().collect()
}

/// Keys of lists that were built and are not in use.
async fn built(app: &TestApp) -> Vec<String> {
    app.redis(&["KEYS", &format!("{}:*", app.keys().unpaid(lane()))]).await
}

/// No process keeps the lanes, so that the next one that looks does.
async fn nobody_keeps(app: &TestApp) {
    app.execute("UPDATE lane_keeper SET until = '1970-01-01T00:00:00Z'").await;
}

/// Redis is emptied, and another process recovers it, up to the moment at which it has read the orders and is about to
/// write the first list.
async fn about_to_write(app: &TestApp) -> (RedisProxy, Arc<App>, JoinSet<bool>) {
    let proxy = proxy_before(app, ":unpaid:").await;
    let other = app.another_instance_behind(&proxy).await;
    let _: String = app.redis(&["FLUSHALL"]).await;
    nobody_keeps(app).await;
    proxy.hold();
    let recovering = other.clone();
    let mut pass = JoinSet::new();
    pass.spawn(async move { recovering.keeper.pass().bounded().await.is_ok() });
    eventually("the lists are about to be written", async || proxy.held() == 1).await;
    (proxy, other, pass)
}

#[tokio::test]
async fn an_order_that_is_paid_meanwhile_leaves_its_list_after_the_opening() {
    let (_server, app) = bounded_app().await;
    let paid = app.number("SELECT id FROM orders WHERE user_id = 1").await;
    let cancelled = app.number("SELECT id FROM orders WHERE user_id = 2").await;
    let (proxy, _other, mut pass) = about_to_write(&app).await;

    assert_eq!(app.pay(1, paid).await.status, 200);
    assert_eq!(app.cancel(2, cancelled).await.status, 200);
    app.app.lanes.read_now().await.expect("Postgres answers");
    // Unit and place wait until the lane is open.
    let _ = app.app.stock_returns.pass().bounded().await;
    let open = "SELECT count(*) FROM stock_returns WHERE done_at IS NULL";
    assert_eq!(app.number(open).await, 2);
    proxy.release();
    let ended = bounded("the end of the recovery", pass.join_next()).await;
    assert!(ended.expect("it was begun").expect("it ends"));
    assert_eq!(listed(&app).await, ["1", "2", "3"], "as they were when the lists were built");
    app.app.lanes.read_now().await.expect("Postgres answers");
    app.give_back().await;
    assert_eq!(listed(&app).await, ["3"]);
    assert!(built(&app).await.is_empty());
}

#[tokio::test]
async fn a_recoverer_that_slept_changes_no_list() {
    let (_server, app) = bounded_app().await;
    let (proxy, other, mut pass) = about_to_write(&app).await;

    nobody_keeps(&app).await;
    keep(&app).await;
    assert_eq!(listed(&app).await, ["1", "2", "3"]);
    let coupon = app.create_flash(5).await;
    sell(&app, coupon, 4..=5).await;
    let before = lists(&app).await;
    assert_eq!(before.len(), 5);
    proxy.release();
    let _ = bounded("the end of the other recovery", pass.join_next()).await;
    // What was on its way to Redis has arrived.
    eventually("the other process has another answer of Redis", async || {
        let ping = redis::cmd("PING");
        other.stores.redis.query::<String>(&ping).await.is_ok()
    })
    .await;
    assert_eq!(lists(&app).await, before);
    assert!(built(&app).await.is_empty());
    app.write_orders().await;
}

#[tokio::test]
async fn lists_are_written_and_switched_under_the_epoch_of_the_recovery_only() {
    let (_server, app) = bounded_app().await;
    let before = lists(&app).await;
    let (lane_key, unpaid) = (app.keys().lane(lane()), app.keys().unpaid(lane()));
    let of_six = app.keys().unpaid_built(lane(), 6);
    let _: i64 = app.redis(&["HSET", &of_six, "9", "900"]).await;
    let list = async |epoch: &str| {
        let script = include_str!("../../../lua/list_unpaid.lua");
        app.redis::<String>(&["EVAL", script, "2", &lane_key, &of_six, epoch, "8", "800"]).await
    };
    let switch = async |epoch: &str| {
        let script = include_str!("../../../lua/switch_unpaid.lua");
        app.redis::<String>(&["EVAL", script, "3", &lane_key, &unpaid, &of_six, epoch]).await
    };
    let is_fenced = async |epoch: &str| {
        assert_eq!(list(epoch).await, "FENCED", "{epoch}");
        assert_eq!(switch(epoch).await, "FENCED", "{epoch}");
        assert_eq!(lists(&app).await, before);
        let fields: i64 = app.redis(&["HLEN", &of_six]).await;
        assert_eq!(fields, 1);
    };
    is_fenced("1").await;
    let _: i64 = app.redis(&["HSET", &lane_key, "epoch", "7", "state", "recovering"]).await;
    is_fenced("6").await;
    is_fenced("8").await;
    assert_eq!((list("7").await, switch("7").await), ("LISTED".into(), "SWITCHED".into()));
    assert_eq!(listed(&app).await, ["8", "9"]);
    assert_eq!(switch("7").await, "SWITCHED");
    assert!(listed(&app).await.is_empty(), "none was built");
    let _: i64 = app.redis(&["HSET", &lane_key, "epoch", "1", "state", "open"]).await;
}

/// Its process died between the two steps.
#[tokio::test]
async fn lists_that_a_recovery_has_left_behind_are_removed_by_the_next_one() {
    let (_server, app) = bounded_app().await;
    let died = app.keys().unpaid_built(lane(), 2);
    let _: i64 = app.redis(&["HSET", &died, "1", "100"]).await;
    app.execute(
        "UPDATE lanes SET epoch = 2, state = 'recovering', closed_at = now(), reason = 'by hand';
         INSERT INTO recoveries (lane, epoch, reason, closed_at) VALUES (0, 2, 'by hand', now())",
    )
    .await;
    keep(&app).await;
    assert_eq!(
        app.number("SELECT sales_kept FROM recoveries WHERE opened_at IS NOT NULL").await,
        1
    );
    assert!(built(&app).await.is_empty());
    assert_eq!(listed(&app).await, ["1", "2", "3"]);
}
