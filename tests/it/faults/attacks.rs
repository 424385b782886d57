//! Attacks on the fence and the recovery: each one once kept a lane closed, or broke a promise.

use std::time::Duration;

use flash_sale::base::limits;
use flash_sale::store::ids::{CouponId, Lane};
use private_servers::testing::{RedisProxy, RedisServer};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::recovery::{LEADERS, code, go_back, keep, sell, start, start_with};
use crate::support::process::{Process, flash_sale};
use crate::support::{TestApp, bounded, eventually, store_arguments_behind, user};

/// A sale of 5 units in each of two lanes; users 1 to 3 have a unit of either.
async fn sales_in_two_lanes(app: &TestApp) -> [CouponId; 2] {
    let mut sales = [None, None];
    while let [None, _] | [_, None] = sales {
        let coupon = app.create_flash(5).await;
        let lane = usize::try_from(coupon.lane().get()).expect("it is 0 or 1");
        sales[lane].get_or_insert(coupon);
    }
    let sales = sales.map(|coupon| coupon.expect("each lane has one"));
    for coupon in sales {
        sell(app, coupon, 1..=3).await;
    }
    app.write_orders().await;
    keep(app).await;
    sales
}

/// Users 1 to 3 still have their units, and 4 and 5 get the others.
async fn sells_the_rest(app: &TestApp, coupon: CouponId) {
    for user in 1..=3 {
        assert_eq!(code(app, user, coupon).await, (409, "already_claimed".to_owned()));
    }
    sell(app, coupon, 4..=5).await;
    assert_eq!(code(app, 6, coupon).await, (410, "sold_out".to_owned()));
    app.write_orders().await;
}

#[tokio::test]
async fn a_lane_without_unpaid_orders_opens_where_other_coupons_have_some() {
    let (_server, app) = start_with(&["--unpaid-orders-max", "2"]).await;
    let coupon = app.create_flash(5).await;
    let regular = app.create_regular().await;
    assert_eq!(app.claim(1, regular).await.status, 201);
    keep(&app).await;
    let _: String = app.redis(&["FLUSHALL"]).await;
    keep(&app).await;
    sell(&app, coupon, 1..=2).await;
    app.write_orders().await;
}

/// Each value that an operator might leave behind by hand in the keys of one sale.
async fn unreadable(app: &TestApp, coupon: CouponId, which: usize) {
    let key = app.keys().coupon(coupon);
    match which {
        0 => {
            let _: i64 = app.redis(&["DEL", &key]).await;
            let _: String = app.redis(&["SET", &key, "a text"]).await;
        }
        1 => {
            let _: i64 = app.redis(&["HSET", &key, "shards", "many"]).await;
        }
        2 => {
            let shard = app.shard_of(coupon, 1).await;
            let _: i64 = app.redis(&["DEL", &shard]).await;
            let _: String = app.redis(&["SET", &shard, "a text"]).await;
        }
        3 => {
            let _: i64 = app.redis(&["HSET", &key, "stock", "many"]).await;
        }
        _ => {
            let shard = app.shard_of(coupon, 1).await;
            let _: i64 = app.redis(&["HSET", &shard, "1", "no order"]).await;
        }
    }
}

async fn is_built_anew(which: usize) {
    let (_server, app) = start(&[]).await;
    let bad = app.create_flash(5).await;
    let good = app.create_flash(5).await;
    for coupon in [bad, good] {
        sell(&app, coupon, 1..=3).await;
    }
    app.write_orders().await;
    keep(&app).await;
    unreadable(&app, bad, which).await;
    let _: i64 = app.redis(&["DEL", &app.keys().lane(bad.lane())]).await;
    keep(&app).await;
    for coupon in [bad, good] {
        sells_the_rest(&app, coupon).await;
    }
}

#[tokio::test]
async fn a_sale_whose_key_has_another_type_is_built_anew() {
    is_built_anew(0).await;
}

#[tokio::test]
async fn a_sale_whose_shards_can_not_be_read_is_built_anew() {
    is_built_anew(1).await;
}

#[tokio::test]
async fn a_sale_with_a_shard_of_another_type_is_built_anew() {
    is_built_anew(2).await;
}

#[tokio::test]
async fn a_sale_whose_stock_is_no_number_is_built_anew() {
    is_built_anew(3).await;
}

#[tokio::test]
async fn a_sale_with_a_buyer_who_can_not_be_read_is_built_anew() {
    is_built_anew(4).await;
}

#[tokio::test]
async fn a_claim_on_a_sale_that_can_not_be_read_has_it_built_anew() {
    for which in [0, 1, 3] {
        let (_server, app) = start(&[]).await;
        let coupon = app.create_flash(5).await;
        sell(&app, coupon, 1..=3).await;
        app.write_orders().await;
        keep(&app).await;
        // A process that doesn't know the shards yet.
        let other = app.another_instance().await;
        unreadable(&app, coupon, which).await;
        let claimed = bounded("an answer", other.claims.claim(coupon, user(1))).await;
        assert!(claimed.is_err(), "{which}: {claimed:?}");
        app.app.leaders.first().give_up().await;
        bounded("the end of the job", other.leaders.first().run_once())
            .await
            .expect("both stores answer");
        sells_the_rest(&app, coupon).await;
    }
}

/// Claims keep asking for the sale, and each one brings a check of it forward.
#[tokio::test]
async fn a_suspected_sale_that_can_not_be_read_holds_up_no_other_lane() {
    let (_server, app) = start_with(&["--lanes", "2"]).await;
    let [bad, lost] = sales_in_two_lanes(&app).await;
    unreadable(&app, bad, 3).await;
    let _: i64 = app.redis(&["DEL", &app.keys().lane(lost.lane())]).await;
    assert_eq!(code(&app, 4, bad).await.0, 503);
    keep(&app).await;
    for coupon in [bad, lost] {
        sells_the_rest(&app, coupon).await;
    }
}

async fn unreadable_lane_is_rebuilt(field: Option<&str>) {
    let (_server, app) = start_with(&["--lanes", "2"]).await;
    let [bad, lost] = sales_in_two_lanes(&app).await;
    let key = app.keys().lane(bad.lane());
    if let Some(field) = field {
        let _: i64 = app.redis(&["HSET", &key, field, "many"]).await;
    } else {
        let _: i64 = app.redis(&["DEL", &key]).await;
        let _: String = app.redis(&["SET", &key, "a text"]).await;
    }
    let _: i64 = app.redis(&["DEL", &app.keys().lane(lost.lane())]).await;
    keep(&app).await;
    for coupon in [bad, lost] {
        sells_the_rest(&app, coupon).await;
    }
}

#[tokio::test]
async fn a_lane_whose_key_has_another_type_is_recovered_and_holds_up_no_other() {
    unreadable_lane_is_rebuilt(None).await;
}

#[tokio::test]
async fn a_lane_whose_state_is_no_state_is_recovered_and_holds_up_no_other() {
    unreadable_lane_is_rebuilt(Some("state")).await;
}

#[tokio::test]
async fn a_lane_whose_epoch_is_no_number_is_recovered_and_holds_up_no_other() {
    unreadable_lane_is_rebuilt(Some("epoch")).await;
}

/// A restored backup of Postgres: which of the two stores is right is for an operator to decide, and no number of
/// attempts decides it.
#[tokio::test]
async fn a_postgres_that_went_back_does_not_catch_up_with_the_epoch_of_redis() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(5).await;
    sell(&app, coupon, 1..=3).await;
    app.write_orders().await;
    keep(&app).await;
    let key = app.keys().lane(coupon.lane());
    let _: i64 = app.redis(&["HSET", &key, "epoch", "6"]).await;
    for _ in 0..10 {
        let _ = bounded("the end of the job", app.app.leaders.first().run_once()).await;
    }
    assert_eq!(code(&app, 4, coupon).await, (503, "recovering".to_owned()));
    let epoch: String = app.redis(&["HGET", &key, "epoch"]).await;
    assert_eq!(epoch, "6");
    app.expect_disagreements();
}

/// Postgres is away, so no lane can be closed. A log that is gone proves no commit.
#[tokio::test]
async fn unwritten_claims_outlast_a_redis_that_was_emptied_while_no_lane_could_be_closed() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(5).await;
    app.app.unwritten_job().await;
    keep(&app).await;
    sell(&app, coupon, 1..=3).await;
    let _: String = app.redis(&["FLUSHALL"]).await;
    let until = Instant::now() + 4 * limits::UNWRITTEN_CHECK_PERIOD;
    while Instant::now() < until {
        app.app.unwritten_job().await;
        sleep(Duration::from_millis(50)).await;
    }
    app.recover().await;
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 3);
    sells_the_rest(&app, coupon).await;
}

#[tokio::test]
async fn a_build_that_fails_leaves_nothing_behind() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(200_000).await;
    sell(&app, coupon, 1..=3).await;
    app.write_orders().await;
    keep(&app).await;
    let _: String = app.redis(&["FLUSHALL"]).await;
    let used: String = app.redis(&["INFO", "memory"]).await;
    let used = used.lines().find_map(|line| line.strip_prefix("used_memory:")?.parse::<u64>().ok());
    let max = (used.expect("Redis tells") + 200_000).to_string();
    let _: String = app.redis(&["CONFIG", "SET", "maxmemory", &max]).await;
    for _ in 0..3 {
        let passed = bounded("the end of the job", app.app.leaders.first().run_once()).await;
        assert!(passed.is_err(), "a full Redis takes no shards");
    }
    let _: String = app.redis(&["CONFIG", "SET", "maxmemory", "0"]).await;
    keep(&app).await;
    let shards: Vec<String> = app.redis(&["KEYS", "*:buyers:*"]).await;
    assert_eq!(shards.len(), app.shards(coupon).await.count() as usize);
    sell(&app, coupon, 4..=5).await;
    app.write_orders().await;
}

#[tokio::test]
async fn a_leader_that_is_killed_while_it_builds_leaves_nothing_behind() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(100).await;
    let order = app.claim(1, coupon).await.order_id();
    app.write_orders().await;
    keep(&app).await;
    // Nothing else that this process sends has the order in it.
    let order: &'static str = order.to_string().leak();
    let proxy = RedisProxy::before(app.redis_url(), order).await;
    let mut command = flash_sale(&["serve", "--roles", "worker", "--redis-timeout-ms", "10000"]);
    command.args(store_arguments_behind(&app, &proxy));
    app.app.leaders.first().give_up().await;
    let leading = Process::spawn(command);
    eventually("the process keeps the lanes", async || app.number(LEADERS).await == 1).await;
    proxy.hold();
    let _: String = app.redis(&["FLUSHALL"]).await;
    eventually("the process writes the buyers", async || proxy.held() > 0).await;
    drop(leading);
    app.recover().await;
    let shards: Vec<String> = app.redis(&["KEYS", "*:buyers:*"]).await;
    assert_eq!(shards.len(), app.shards(coupon).await.count() as usize);
    assert_eq!(code(&app, 1, coupon).await, (409, "already_claimed".to_owned()));
}

/// The first of these sales ends and is archived; then Redis goes back to before that, and the second one notices.
async fn archive_and_go_back(
    server: &mut RedisServer,
    app: &TestApp,
    (over, other): (CouponId, CouponId),
    accept_loss: bool,
) {
    let _: String = app.redis(&["SAVE"]).await;
    for _ in 0..3 {
        keep(app).await;
    }
    assert_eq!(app.r#move(over, "end").await.status, 200);
    let path = format!("/v1/coupons/{over}/archive");
    let asked = app.post(&path, &app.admin_token(), &json!({ "accept_loss": accept_loss })).await;
    assert_eq!(asked.status, 200, "{asked:?}");
    go_back(server, app, other).await;
    app.recover().await;
}

#[tokio::test]
async fn an_archived_sale_that_came_back_with_redis_is_answered_by_postgres_and_removed_again() {
    let (mut server, app) = start(&[]).await;
    let (over, other) = (app.create_flash(5).await, app.create_flash(5).await);
    let order = app.paid_order(1, over).await;
    sell(&app, other, 1..=3).await;
    app.write_orders().await;
    keep(&app).await;
    archive_and_go_back(&mut server, &app, (over, other), false).await;
    assert_eq!(app.claim(1, over).await.order_id(), order);
    assert_eq!(code(&app, 2, over).await, (410, "sale_ended".to_owned()));
    app.app.archive.run_once().await.expect("both stores answer");
    assert_eq!(app.redis::<i64>(&["EXISTS", &app.keys().coupon(over)]).await, 0);
    sells_the_rest(&app, other).await;
}

/// One of them was promised, and never written; an operator has accepted that loss, and archived the sale.
#[tokio::test]
async fn buyers_of_an_archived_sale_that_came_back_with_redis_get_no_orders() {
    let (mut server, app) = start(&[]).await;
    let (over, other) = (app.create_flash(5).await, app.create_flash(5).await);
    let order = app.paid_order(1, over).await;
    sell(&app, other, 1..=3).await;
    app.write_orders().await;
    keep(&app).await;
    let shard = app.shard_of(over, 2).await;
    let _: i64 = app.redis(&["HSET", &shard, "2", &(order - 1).to_string()]).await;
    let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(over), "stock", "-1"]).await;
    archive_and_go_back(&mut server, &app, (over, other), true).await;
    let orders = format!("SELECT count(*) FROM orders WHERE coupon_id = {over}");
    assert_eq!(app.number(&orders).await, 1);
    app.app.archive.run_once().await.expect("both stores answer");
    sells_the_rest(&app, other).await;
}

/// The order is cancelled, and its unit is back, in the time that Redis has lost; then the sale is built anew.
#[tokio::test]
async fn a_buyer_whose_order_was_cancelled_in_the_lost_time_gets_no_order_again() {
    let (mut server, app) = start(&[]).await;
    let coupon = app.create_flash(3).await;
    let order = app.claim(1, coupon).await.order_id();
    sell(&app, coupon, 2..=2).await;
    app.write_orders().await;
    keep(&app).await;
    let _: String = app.redis(&["SAVE"]).await;
    for _ in 0..3 {
        keep(&app).await;
    }
    assert_eq!(app.cancel(1, order).await.status, 200);
    app.app.stock_returns.run_once().await.expect("both stores answer");
    assert_eq!(app.stock(coupon).await, 2);
    go_back(&mut server, &app, coupon).await;
    app.recover().await;
    let built = "SELECT sales_built FROM recoveries WHERE opened_at IS NOT NULL";
    assert_eq!(app.number(built).await, 1);
    assert_eq!(app.number("SELECT harvested FROM recoveries WHERE opened_at IS NOT NULL").await, 0);
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 2);
    assert_eq!(app.my_claim(1, coupon).await.text("status"), "cancelled");
    assert_eq!(app.buyers(coupon).await.into_keys().collect::<Vec<_>>(), [2]);
    sell(&app, coupon, 3..=4).await;
    assert_eq!(code(&app, 5, coupon).await, (410, "sold_out".to_owned()));
    app.write_orders().await;
}

/// The unwritten claim is handed in before a worker has written the claim, and looked at after its order was cancelled.
#[tokio::test]
async fn a_late_unwritten_claim_of_a_cancelled_order_closes_no_lane() {
    let (mut server, app) = start(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let coupon = app.create_flash(5).await;
    let late = app.another_instance().await;
    keep(&app).await;
    let told = late.claims.claim(coupon, user(1)).await.expect("Redis answers");
    assert_eq!(told.status().code, "accepted");
    server.kill();
    server.start_again();
    eventually("the lane is closed", async || code(&app, 2, coupon).await.1 == "recovering").await;
    keep(&app).await;
    let recoveries = "SELECT count(*) FROM recoveries";
    assert_eq!(app.number(recoveries).await, 1);
    eventually("the claim is handed in", async || {
        let _ = late.hand_in.tick().await;
        app.number("SELECT count(*) FROM unwritten_claims").await == 1
    })
    .await;
    app.write_orders().await;
    let order = app.my_claim(1, coupon).await.order_id();
    assert_eq!(app.cancel(1, order).await.status, 200);
    app.app.stock_returns.run_once().await.expect("both stores answer");
    keep(&app).await;
    assert_eq!(app.number("SELECT count(*) FROM unwritten_claims").await, 0);
    assert_eq!(app.number(recoveries).await, 1, "all promises are kept");
    sell(&app, coupon, 2..=6).await;
    app.write_orders().await;
}

/// A Redis that has lost the claim of a letter: the sale is kept, and a retry takes a unit.
#[tokio::test]
async fn a_dead_letter_of_the_last_moment_has_no_unit_any_more() {
    let (mut server, app) = start(&[]).await;
    let (coupon, other) = (app.create_flash(5).await, app.create_flash(5).await);
    sell(&app, coupon, 1..=3).await;
    app.write_orders().await;
    keep(&app).await;
    let _: String = app.redis(&["SAVE"]).await;
    let order = app.claim(4, coupon).await.order_id();
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
         VALUES ({order}, {other}, 'flash', 77, now(), 'cancelled', now())"
    ))
    .await;
    assert_eq!(app.write_orders().await.dead_letters, 1);
    go_back(&mut server, &app, coupon).await;
    app.recover().await;
    assert_eq!(app.my_claim(4, coupon).await.text("status"), "in_review");
    assert_eq!((app.stock(coupon).await, app.buyers_count(coupon).await), (2, 3));
    app.expect_disagreements();
}

#[tokio::test]
async fn a_process_that_ends_keeps_no_lanes_and_is_waited_for_by_no_recovery() {
    let app = TestApp::start().await;
    let living = "SELECT count(*) FROM processes";
    let mut process = Process::serve(&app, &[]);
    eventually("it keeps the lanes", async || {
        app.number(living).await == 1 && app.number(LEADERS).await == 1
    })
    .await;
    process.assert_stops().await;
    assert_eq!(app.number(living).await, 0);
    assert_eq!(app.number(LEADERS).await, 0);
}

/// A lane whose log no worker writes waits for it; the check of the others goes on.
#[tokio::test]
async fn a_lane_that_waits_for_its_log_does_not_hide_the_loss_of_another() {
    let (_server, app) = start_with(&["--lanes", "2"]).await;
    let [waiting, lost] = sales_in_two_lanes(&app).await;
    sell(&app, waiting, 4..=4).await;
    let lane_of = |coupon: CouponId| app.keys().lane(Lane::numbered(coupon.lane().get()));
    let _: i64 = app.redis(&["DEL", &lane_of(waiting)]).await;
    let keeping = async {
        loop {
            let _ = app.app.leaders.first().run_once().await;
        }
    };
    let recovered = async {
        let closed = async || !app.app.lanes.recovering().is_empty();
        eventually("the first lane is closed", closed).await;
        let _: i64 = app.redis(&["DEL", &lane_of(lost)]).await;
        let lost = lost.lane();
        let reason = format!(
            "SELECT count(*) FROM recoveries WHERE opened_at IS NOT NULL AND lane = {lost} AND reason = 'Redis has lost its data'"
        );
        eventually("the other lane is recovered", async || app.number(&reason).await == 1).await;
    };
    tokio::select! {
        () = keeping => {}
        () = bounded("the other lane is recovered", recovered) => {}
    }
    app.recover().await;
    sells_the_rest(&app, lost).await;
}
