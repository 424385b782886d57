//! A Redis that lost data: each lane is closed, built anew from Postgres, and opened, without an operator.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use flash_sale::base::clock::Clock;
use flash_sale::store::ids::CouponId;
use private_servers::testing::RedisServer;
use tokio::time::Instant;

use crate::faults::failover::{ask, make_master, make_replica};
use crate::support::process::{Process, flash_sale};
use crate::support::servers::Addresses;
use crate::support::{TestApp, bounded, eventually, shared, user};

/// An app on a Redis of its own with these options.
pub async fn start(options: &[&str]) -> (RedisServer, TestApp) {
    start_with_options(options, &[]).await
}

/// An app with these arguments on a Redis of its own.
pub async fn start_with(arguments: &[&str]) -> (RedisServer, TestApp) {
    start_with_options(&[], arguments).await
}

/// An app with these arguments on a Redis of its own with these options.
pub async fn start_with_options(options: &[&str], arguments: &[&str]) -> (RedisServer, TestApp) {
    let server = RedisServer::start(options);
    let app = on(&server.url(), arguments).await;
    (server, app)
}

/// An app with these arguments whose Redis is at this URL.
pub async fn on(url: &str, arguments: &[&str]) -> TestApp {
    let at = Addresses { redis_url: url.to_owned(), ..shared().clone() };
    TestApp::on(&at, arguments, Clock::System).await
}

pub async fn code(app: &TestApp, user: i64, coupon: CouponId) -> (u16, String) {
    let reply = app.claim(user, coupon).await;
    (reply.status, reply.body["code"].as_str().unwrap_or_default().to_owned())
}

/// Number of processes that look after the lanes: one or none.
pub const LEADERS: &str = "SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND classid = x'6c656164'::int::oid
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// One look of the leader, with everything that follows from it.
pub async fn keep(app: &TestApp) {
    bounded("the end of the job", app.app.leaders.first().run_once())
        .await
        .expect("both stores answer");
}

pub async fn sell(app: &TestApp, coupon: CouponId, users: std::ops::RangeInclusive<i64>) {
    for user in users {
        assert_eq!(app.claim(user, coupon).await.status, 202, "user {user}");
    }
}

async fn sells_the_rest(app: &TestApp, coupon: CouponId, sold: std::ops::RangeInclusive<i64>) {
    sells_the_rest_of(app, coupon, sold).await;
    app.write_orders().await;
}

/// Claims of users 1 to 20 on a sale of 10 units, of which `sold` have one: the others get what is left, and no more.
async fn sells_the_rest_of(app: &TestApp, coupon: CouponId, sold: std::ops::RangeInclusive<i64>) {
    let mut winners = 0;
    for user in 1..=20 {
        let (status, code) = code(app, user, coupon).await;
        let expected =
            if sold.contains(&user) { (409, "already_claimed") } else { (410, "sold_out") };
        match status {
            202 if !sold.contains(&user) => winners += 1,
            status => assert_eq!((status, code.as_str()), expected, "user {user}"),
        }
    }
    assert_eq!(winners, 10 - sold.count());
}

#[tokio::test]
async fn a_redis_that_was_emptied_sells_the_rest_and_no_more() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    sell(&app, coupon, 1..=6).await;
    app.write_orders().await;
    keep(&app).await;
    let _: String = app.redis(&["FLUSHALL"]).await;
    assert_eq!(code(&app, 7, coupon).await, (503, "recovering".to_owned()));
    assert_eq!(code(&app, 1, coupon).await, (503, "recovering".to_owned()));
    keep(&app).await;
    sells_the_rest(&app, coupon, 1..=6).await;
    assert_eq!(app.number("SELECT count(*) FROM recoveries WHERE opened_at IS NOT NULL").await, 1);
    assert_eq!(app.number("SELECT buyers FROM recoveries WHERE opened_at IS NOT NULL").await, 6);
}

#[tokio::test]
async fn a_redis_that_went_back_in_time_forgets_no_row() {
    let (mut server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    sell(&app, coupon, 1..=2).await;
    keep(&app).await;
    let _: String = app.redis(&["SAVE"]).await;
    sell(&app, coupon, 3..=6).await;
    app.write_orders().await;
    keep(&app).await;
    server.kill();
    server.start_again();
    eventually("the lane is closed", async || code(&app, 7, coupon).await.1 == "recovering").await;
    // The log went back, too: its entries are rows already.
    let worker = Process::serve(&app, &["--roles", "worker"]);
    eventually("the lane opens", async || code(&app, 1, coupon).await.0 == 409).await;
    drop(worker);
    sells_the_rest(&app, coupon, 1..=6).await;
}

#[tokio::test]
async fn a_redis_that_lost_nothing_opens_as_it_was() {
    let (mut server, app) = start(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let coupon = app.create_flash(10).await;
    sell(&app, coupon, 1..=3).await;
    app.write_orders().await;
    keep(&app).await;
    // Still in the log when Redis dies.
    sell(&app, coupon, 4..=6).await;
    server.kill();
    server.start_again();
    eventually("the lane is closed", async || code(&app, 7, coupon).await.1 == "recovering").await;
    keep(&app).await;
    assert_eq!(app.number("SELECT sales_kept FROM recoveries").await, 1);
    assert_eq!(app.number("SELECT sales_built FROM recoveries").await, 0);
    sells_the_rest(&app, coupon, 1..=6).await;
}

#[tokio::test]
async fn a_sale_that_is_gone_is_built_again_and_others_are_kept() {
    let (_server, app) = start(&[]).await;
    let lost = app.create_flash(10).await;
    let kept = app.create_flash(10).await;
    for coupon in [lost, kept] {
        sell(&app, coupon, 1..=5).await;
    }
    app.write_orders().await;
    keep(&app).await;
    app.lose_sale(lost).await;
    assert_eq!(code(&app, 1, lost).await.0, 503);
    keep(&app).await;
    for coupon in [lost, kept] {
        sells_the_rest(&app, coupon, 1..=5).await;
    }
    assert_eq!(app.number("SELECT sales_kept FROM recoveries").await, 1);
}

#[tokio::test]
async fn buyers_that_only_redis_knows_become_orders() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    sell(&app, coupon, 1..=4).await;
    // The log and the lane are lost; the sale and its buyers are not.
    let lane = app.keys().lane(coupon.lane());
    let _: i64 = app.redis(&["DEL", &app.log(coupon.lane()), &lane]).await;
    keep(&app).await;
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 4);
    assert_eq!(app.number("SELECT harvested FROM recoveries WHERE opened_at IS NOT NULL").await, 4);
    sells_the_rest(&app, coupon, 1..=4).await;
}

#[tokio::test]
async fn a_closed_order_comes_back_by_no_recovery() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    sell(&app, coupon, 1..=4).await;
    app.write_orders().await;
    let order = app.number("SELECT id FROM orders WHERE user_id = 4").await;
    let path = format!("/v1/orders/{order}/cancel");
    assert_eq!(app.post(&path, &app.token(4), &serde_json::json!({})).await.status, 200);
    keep(&app).await;
    let _: String = app.redis(&["FLUSHALL"]).await;
    keep(&app).await;
    assert_eq!(
        app.buyers(coupon).await.into_keys().collect::<BTreeSet<_>>(),
        BTreeSet::from([1, 2, 3])
    );
    // The unit came back with the recovery, and comes back only once.
    app.app.stock_returns.run_once().await.expect("both stores answer");
    sells_the_rest(&app, coupon, 1..=3).await;
}

/// The buyer of a cancelled order is in an older Redis again.
#[tokio::test]
async fn a_unit_that_came_back_in_the_lost_time_comes_back_again() {
    let (mut server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    sell(&app, coupon, 1..=4).await;
    app.write_orders().await;
    keep(&app).await;
    let _: String = app.redis(&["SAVE"]).await;
    let order = app.number("SELECT id FROM orders WHERE user_id = 4").await;
    let path = format!("/v1/orders/{order}/cancel");
    assert_eq!(app.post(&path, &app.token(4), &serde_json::json!({})).await.status, 200);
    app.app.stock_returns.run_once().await.expect("both stores answer");
    assert_eq!(app.buyers(coupon).await.len(), 3);

    go_back(&mut server, &app, coupon).await;
    assert_eq!(app.buyers(coupon).await.len(), 4);
    app.recover().await;
    app.app.stock_returns.run_once().await.expect("both stores answer");
    assert_eq!(
        app.number("SELECT sales_built FROM recoveries WHERE opened_at IS NOT NULL").await,
        1
    );
    sells_the_rest(&app, coupon, 1..=3).await;
}

#[tokio::test]
async fn a_recoverer_that_slept_switches_no_sale() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    sell(&app, coupon, 1..=4).await;
    app.write_orders().await;
    let (lane, sale) = (app.keys().lane(coupon.lane()), app.keys().coupon(coupon));
    let contents = async || app.redis::<BTreeMap<String, String>>(&["HGETALL", &sale]).await;
    let before = contents().await;
    let switch = async |epoch: &str| {
        let script = include_str!("../../../lua/switch_sale.lua");
        let built = ["0", "1", "10", "10", "active", "a load", "1", "1@6", ""];
        let words = ["EVAL", script, "2", lane.as_str(), sale.as_str(), epoch];
        app.redis::<String>(&[words.as_slice(), &built].concat()).await
    };
    assert_eq!(switch("1").await, "FENCED", "the lane is open");
    let _: i64 = app.redis(&["HSET", &lane, "epoch", "7", "state", "recovering"]).await;
    for epoch in ["6", "8"] {
        assert_eq!(switch(epoch).await, "FENCED", "{epoch}");
    }
    assert_eq!(contents().await, before);
    let _: i64 = app.redis(&["HSET", &lane, "epoch", "1", "state", "open"]).await;
    sells_the_rest(&app, coupon, 1..=4).await;
}

#[tokio::test]
async fn two_recoveries_build_a_sale_once() {
    let (_server, app) = start(&[]).await;
    let other = app.another_instance().await;
    let coupon = app.create_flash(10).await;
    sell(&app, coupon, 1..=6).await;
    app.write_orders().await;
    keep(&app).await;
    let _: String = app.redis(&["FLUSHALL"]).await;
    // The first one loses the lock in the middle of its recovery, and goes on.
    let end = LEADERS.replace("count(*)", "count(pg_terminate_backend(pid))");
    let (first, second) = tokio::join!(app.app.leaders.first().run_once(), async {
        app.number(&end).await;
        other.leaders.first().run_once().await
    });
    let _ = (first, second);
    eventually("the lane is open", async || {
        let _ = app.app.leaders.first().run_once().await;
        let _ = other.leaders.first().run_once().await;
        code(&app, 1, coupon).await.0 == 409
    })
    .await;
    sells_the_rest(&app, coupon, 1..=6).await;
}

/// A worker keeps the lanes, and neither a claim nor a comparison tells it of the loss.
#[tokio::test]
async fn a_sale_that_only_a_process_without_the_lanes_finds_lost_is_built_again() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    let _worker = Process::serve(&app, &["--roles", "worker", "--reconcile-period-ms", "0"]);
    eventually("the worker keeps the lanes", async || app.number(LEADERS).await == 1).await;
    sell(&app, coupon, 1..=4).await;
    let written = async || app.number("SELECT count(*) FROM orders").await == 4;
    eventually("the orders are written", written).await;
    let shard = app.keys().shards(coupon, 0).name(0).to_owned();
    let _: i64 = app.redis(&["DEL", &shard]).await;
    eventually("the sale is built again", async || {
        let (status, _) = code(&app, 5, coupon).await;
        keep(&app).await;
        status == 202
    })
    .await;
    let reason = "SELECT count(*) FROM recoveries WHERE reason = 'Redis has lost a sale'";
    assert_eq!(app.number(reason).await, 1);
    sells_the_rest(&app, coupon, 1..=5).await;
}

/// From now on Redis has the data of its SAVE.
pub async fn go_back(server: &mut RedisServer, app: &TestApp, coupon: CouponId) {
    server.kill();
    server.start_again();
    eventually("the lane is closed", async || code(app, 1, coupon).await.1 == "recovering").await;
}

#[tokio::test]
async fn what_redis_lost_is_kept_while_the_process_lives_that_promised_it() {
    let (mut server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    app.app.unwritten_job().await;
    sell(&app, coupon, 1..=3).await;
    app.write_orders().await;
    keep(&app).await;
    let _: String = app.redis(&["SAVE"]).await;
    let mut promised = Vec::new();
    for user in 4..=6 {
        promised.push(app.claim(user, coupon).await.order_id());
    }
    go_back(&mut server, &app, coupon).await;
    app.recover().await;
    assert_eq!(app.number("SELECT unwritten FROM recoveries WHERE opened_at IS NOT NULL").await, 3);
    for (user, order) in (4..=6).zip(promised) {
        assert_eq!(app.my_claim(user, coupon).await.order_id(), order, "user {user}");
    }
    sells_the_rest(&app, coupon, 1..=6).await;
    assert_eq!(app.number("SELECT count(*) FROM unwritten_claims").await, 0);
}

/// A claim may become a row between the check that hands its unwritten claim in and the next check of the leader.
#[tokio::test]
async fn an_unwritten_claim_whose_claim_is_a_row_holds_up_no_recovery() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    sell(&app, coupon, 1..=2).await;
    app.write_orders().await;
    keep(&app).await;
    app.execute(
        "INSERT INTO unwritten_claims (order_id, coupon_id, user_id) SELECT id, coupon_id, user_id FROM orders",
    )
    .await;
    keep(&app).await;
    assert_eq!(app.number("SELECT count(*) FROM unwritten_claims").await, 0);
    let _: String = app.redis(&["FLUSHALL"]).await;
    keep(&app).await;
    sells_the_rest(&app, coupon, 1..=2).await;
}

/// A process that has just started hands in what it has promised since, and no worker has written it yet.
#[tokio::test]
async fn an_unwritten_claim_whose_claim_waits_in_the_log_closes_no_lane() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    sell(&app, coupon, 1..=3).await;
    app.app.unwritten_job().await;
    assert_eq!(app.number("SELECT count(*) FROM unwritten_claims").await, 3);
    keep(&app).await;
    assert_eq!(app.number("SELECT count(*) FROM recoveries").await, 0);
    app.write_orders().await;
    keep(&app).await;
    assert_eq!(app.number("SELECT count(*) FROM unwritten_claims").await, 0);
    sells_the_rest(&app, coupon, 1..=3).await;
}

/// A process that promised was away while Redis was recovered, and some of its users have claimed again.
#[tokio::test]
async fn what_is_handed_in_late_gets_the_units_that_are_left() {
    let (mut server, app) = start(&[]).await;
    let coupon = app.create_flash(6).await;
    let late = app.another_instance().await;
    sell(&app, coupon, 1..=2).await;
    app.write_orders().await;
    keep(&app).await;
    let _: String = app.redis(&["SAVE"]).await;
    for id in 3..=6 {
        let told = late.claims.claim(coupon, user(id)).await.expect("Redis answers");
        assert_eq!(told.status().code, "accepted");
    }
    go_back(&mut server, &app, coupon).await;
    keep(&app).await;
    // User 3 claims again, and users 7 and 8 are new: one unit is left.
    for id in [3, 7, 8] {
        assert_eq!(app.claim(id, coupon).await.status, 202, "user {id}");
    }
    app.write_orders().await;

    late.hand_in.tick().await.expect("both stores answer");
    assert_eq!(app.number("SELECT count(*) FROM unwritten_claims").await, 4);
    app.recover().await;
    assert_eq!(app.number("SELECT count(*) FROM unwritten_claims").await, 0);
    let lost = "SELECT count(*) FROM recoveries, jsonb_array_elements(lost) AS one WHERE one->>'reason' = ";
    assert_eq!(app.number(&format!("{lost} 'superseded'")).await, 1, "the first order of user 3");
    assert_eq!(app.number(&format!("{lost} 'accepted_without_unit'")).await, 2);
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 6);
    assert_eq!(app.my_claim(4, coupon).await.text("status"), "unpaid");
    for id in [5, 6] {
        assert_eq!(app.my_claim(id, coupon).await.text("status"), "in_review", "user {id}");
    }
    assert_eq!(app.stock(coupon).await, 0);
}

/// Foreign keys stand where the shards of the first sale would be built.
#[tokio::test]
async fn a_sale_that_can_not_be_built_stays_closed_alone() {
    let (_server, app) = start(&[]).await;
    let bad = app.create_flash(10).await;
    let good = app.create_flash(10).await;
    for coupon in [bad, good] {
        sell(&app, coupon, 1..=4).await;
    }
    app.write_orders().await;
    keep(&app).await;
    let _: String = app.redis(&["FLUSHALL"]).await;
    // The lane's epoch is raised when the lane is closed, and by each attempt.
    let in_the_way = [3, 5].map(|epoch| app.keys().shards(bad, epoch).name(0).to_owned());
    for key in &in_the_way {
        let _: String = app.redis(&["SET", key, "of another program"]).await;
    }
    keep(&app).await;
    sells_the_rest(&app, good, 1..=4).await;
    let is_closed = async || {
        assert_eq!(code(&app, 5, bad).await.0, 503);
        assert_eq!(code(&app, 1, bad).await.0, 503);
        let item = app.waiting("postponed").await[0].clone();
        let detail = item["detail"].as_str().expect("a text");
        assert!(detail.starts_with(&format!("rebuild: coupon {bad} ")), "{item}");
        assert!(detail.contains("WRONGTYPE"), "{item}");
    };
    is_closed().await;
    // Before it is due again, no claim on it has the others' lane closed.
    let recoveries = "SELECT count(*) FROM recoveries";
    app.execute("UPDATE postponed SET next_try_at = now() + interval '1 hour'").await;
    keep(&app).await;
    assert_eq!(app.number(recoveries).await, 1);
    let due = "UPDATE postponed SET next_try_at = now() - interval '1 second'";
    app.execute(due).await;
    keep(&app).await;
    assert_eq!(app.number(recoveries).await, 2);
    is_closed().await;
    assert_eq!(code(&app, 1, good).await.1, "already_claimed");
    app.execute(due).await;
    keep(&app).await;
    sells_the_rest(&app, bad, 1..=4).await;
    app.execute(due).await;
    keep(&app).await;
    assert_eq!(app.number("SELECT count(*) FROM postponed").await, 0);
    assert_eq!(app.number(recoveries).await, 3);
}

/// Claims of both sales wait in the log of the closed lane, and another session keeps the row of one locked.
#[tokio::test]
async fn a_sale_whose_row_is_kept_locked_stays_closed_alone_and_keeps_its_claims() {
    let (_server, app) = start(&[]).await;
    let (locked, free) = (app.create_flash(10).await, app.create_flash(10).await);
    for coupon in [locked, free] {
        sell(&app, coupon, 1..=2).await;
    }
    app.write_orders().await;
    keep(&app).await;
    for coupon in [locked, free] {
        sell(&app, coupon, 3..=3).await;
        app.lose_sale(coupon).await;
    }
    let lock = format!("SELECT FROM flash_sales WHERE coupon_id = {locked} FOR UPDATE");
    let other = app.holding(&lock).await;
    // A statement that waits for a lock ends with this code once it has waited for long. Here it ends at once.
    app.refuse("INSERT", "orders", &format!("NEW.coupon_id = {locked}"), "55P03").await;
    assert_eq!(code(&app, 1, free).await.0, 503);
    app.recover().await;
    sells_the_rest_of(&app, free, 1..=3).await;
    assert_eq!(code(&app, 1, locked).await.0, 503);
    let due = "UPDATE postponed SET next_try_at = now() - interval '1 second'";
    app.execute(due).await;
    keep(&app).await;
    assert_eq!(app.number("SELECT count(*) FROM recoveries").await, 1, "that would be in vain");
    let list = app.get("/v1/operations?kind=postponed", &app.admin_token()).await;
    let item = &list.body["items"][0];
    assert!(item["detail"].as_str().is_some_and(|error| error.contains("locked")), "{item}");

    other.rollback().await.expect("Postgres answers");
    app.accept("orders").await;
    app.execute(due).await;
    eventually("the sale is built", async || {
        app.recover().await;
        app.number("SELECT count(*) FROM postponed").await == 0
    })
    .await;
    sells_the_rest(&app, locked, 1..=3).await;
}

/// Nothing else tells: run and connections are the same.
#[tokio::test]
async fn a_redis_that_was_synchronised_anew_between_two_checks_is_told_by_its_replication_id() {
    let (server, port) = RedisServer::on_tcp(&[]);
    let (replica, replica_port) = RedisServer::on_tcp(&[]);
    let app = on(&server.url(), &[]).await;
    let coupon = app.create_flash(10).await;
    sell(&app, coupon, 1..=2).await;
    app.write_orders().await;
    let closed_for = |reason: &str| {
        format!(
            "SELECT count(*) FROM recoveries WHERE opened_at IS NOT NULL AND reason = '{reason}'"
        )
    };
    let other_id = closed_for("Redis has another replication ID");
    keep(&app).await;
    assert_eq!(app.number("SELECT count(*) FROM recoveries").await, 0);

    // The first replica changes the ID, too, and does no harm.
    make_replica(&replica, port).await;
    let follows = async || ask::<i64>(&server, &["WAIT", "1", "100"]).await == 1;
    eventually("the replica follows", follows).await;
    keep(&app).await;
    assert_eq!(app.number(&other_id).await, 1);
    assert_eq!(app.number("SELECT sales_kept FROM recoveries").await, 1);
    keep(&app).await;
    let has_all = async || {
        let epoch = ["HGET", &app.keys().lane(coupon.lane()), "epoch"];
        ask::<i64>(&server, &epoch).await == ask::<i64>(&replica, &epoch).await
    };
    eventually("the replica has the epoch", has_all).await;
    make_master(&replica).await;

    sell(&app, coupon, 3..=4).await;
    app.write_orders().await;
    make_replica(&server, replica_port).await;
    let is_up = async || {
        let info: String = ask(&server, &["INFO", "replication"]).await;
        info.contains("master_link_status:up")
    };
    eventually("the server has the older data", is_up).await;
    make_master(&server).await;
    keep(&app).await;
    assert_eq!(app.number(&other_id).await, 2);
    sells_the_rest(&app, coupon, 1..=4).await;
}

#[tokio::test]
async fn a_service_comes_back_by_itself() {
    let (mut server, app) = start(&["--appendonly", "yes"]).await;
    let coupon = app.create_flash(10).await;
    let _service = Process::serve(&app, &[]);
    sell(&app, coupon, 1..=6).await;
    eventually("the orders are written", async || {
        app.number("SELECT count(*) FROM orders").await == 6
    })
    .await;
    let _: String = app.redis(&["FLUSHALL"]).await;
    eventually("claims are taken again", async || code(&app, 1, coupon).await.0 == 409).await;
    server.kill();
    server.start_again();
    eventually("claims are taken again", async || code(&app, 2, coupon).await.0 == 409).await;
    sells_the_rest(&app, coupon, 1..=6).await;
}

/// The words of the command line about the stores of this app.
pub async fn command(app: &TestApp, words: &[&str]) -> String {
    let mut command = flash_sale(words);
    command.args(&app.store_arguments()[..4]).args(["--key-prefix", &app.store_arguments()[5]]);
    let said = tokio::task::spawn_blocking(move || command.output()).await.expect("it runs");
    let said = said.expect("it runs");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8(said.stdout).expect("text")
}

/// Postgres is restored from a backup: Redis has the newer epoch, and buyers that Postgres doesn't know.
#[tokio::test]
async fn a_postgres_that_went_back_waits_for_an_operator() {
    for (trust, live_orders) in [("redis", 5), ("postgres", 2)] {
        let (_server, app) = start(&[]).await;
        let coupon = app.create_flash(10).await;
        // Another process, which hands no unwritten claims in: a restored backup is older than these.
        let another = app.another_instance().await;
        for id in 1..=5 {
            let told = another.claims.claim(coupon, user(id)).await.expect("Redis answers");
            assert_eq!(told.status().code, "accepted");
        }
        app.write_orders().await;
        keep(&app).await;
        app.execute("DELETE FROM orders WHERE user_id > 2; UPDATE flash_sales SET sold = 2").await;
        let lane = app.keys().lane(coupon.lane());
        let _: i64 = app.redis(&["HSET", &lane, "epoch", "7"]).await;
        for _ in 0..10 {
            keep(&app).await;
            assert_eq!(code(&app, 1, coupon).await.0, 503);
        }
        let lanes = "SELECT concat_ws(' ', epoch, state) FROM lanes";
        assert_eq!(app.texts(lanes).await, ["8 recovering"], "no process decides by itself");
        let epoch: String = app.redis(&["HGET", &lane, "epoch"]).await;
        assert_eq!(epoch, "7", "Redis may be selling for another Postgres");

        let said = command(&app, &["recover", "--dry-run"]).await;
        assert!(said.contains("user 3 was told order"), "{said}");
        command(&app, &["recover", "--trust", trust]).await;
        app.recover().await;
        assert_eq!(app.number("SELECT count(*) FROM orders").await, live_orders, "{trust}");
        sells_the_rest(&app, coupon, 1..=live_orders).await;
        let list = app.get("/v1/recoveries?limit=1", &app.admin_token()).await;
        assert_eq!(list.body["recoveries"][0]["reason"], "an operator asked for it");
    }
}

// ---- long ----

const MILLION: i64 = 1_000_000;
/// Time in which they are built, however slow the machine.
const MILLION_WITHIN: Duration = Duration::from_secs(900);
/// Bounds of a build, of an optimised service on two cores with nothing else to do (docs/guarantees.md).
const BUILD_MAX: Duration = Duration::from_secs(15);
const START_MAX: Duration = Duration::from_secs(3);
const BUILD_MB_MAX: u64 = 64;

/// Prints how long a sale of a million buyers is closed: after a loss of everything, and after a plain restart.
#[tokio::test]
#[ignore = "takes a minute, and prints what it saw"]
async fn a_million_buyers_are_built_again() {
    let (mut server, app) = start(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let coupon = app.create_flash(MILLION + 10).await;
    let first = app.claim(MILLION + 1, coupon).await.order_id();
    app.write_orders().await;
    app.execute(&format!(
        "SET statement_timeout = 0;
         INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
         SELECT {first} - n, {coupon}, 'flash', n, now() FROM generate_series(1, {MILLION}) AS n;
         UPDATE flash_sales SET sold = sold + {MILLION}"
    ))
    .await;
    keep(&app).await;
    let _: String = app.redis(&["FLUSHALL"]).await;
    let before = resident_mb();
    let began = Instant::now();
    app.recover_within(MILLION_WITHIN).await;
    let (time, most) = (began.elapsed(), resident_mb());
    println!(
        "emptied: {MILLION} buyers built in {time:.1?}; this process had {before} MB, and at most {most} MB since"
    );
    if !cfg!(debug_assertions) {
        assert!(
            time <= BUILD_MAX && most <= before + BUILD_MB_MAX,
            "{time:?}, {before} to {most} MB"
        );
    }
    assert_eq!(
        app.number("SELECT buyers FROM recoveries WHERE opened_at IS NOT NULL").await,
        MILLION + 1
    );
    assert_eq!(code(&app, 1, coupon).await, (409, "already_claimed".to_owned()));
    sell(&app, coupon, MILLION + 2..=MILLION + 10).await;
    assert_eq!(code(&app, MILLION + 11, coupon).await, (410, "sold_out".to_owned()));
    app.write_orders().await;

    keep(&app).await;
    server.kill();
    server.start_again();
    let ping = redis::cmd("PING");
    let answers = async || app.app.stores.fleet.first().query::<String>(&ping).await.is_ok();
    eventually("Redis answers", answers).await;
    let began = Instant::now();
    app.recover_within(MILLION_WITHIN).await;
    let time = began.elapsed();
    println!("started anew: closed for {time:.0?} after Redis answered");
    assert!(cfg!(debug_assertions) || time <= START_MAX, "{time:?}");
    assert_eq!(app.number("SELECT sales_built FROM recoveries ORDER BY id DESC LIMIT 1").await, 0);
    assert_eq!(code(&app, 1, coupon).await, (409, "already_claimed".to_owned()));
}

/// The most memory that this process has had, in MB.
fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = peak.and_then(|peak| peak.split_whitespace().next()?.parse::<u64>().ok());
    kb.unwrap_or(0) / 1_000
}
