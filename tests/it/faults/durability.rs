//! The levels of durability: what each survives, and what is not confirmed while it can't be kept (docs/guarantees.md).

use flash_sale::store::ids::CouponId;
use private_servers::testing::{RedisServer, Switch};
use serde_json::json;

use super::failover::{ask, make_master, make_replica};
use super::recovery::{on, start_with_options};
use crate::support::process::{Process, try_claim};

use crate::support::{IMPATIENT_WITH_REDIS, TestApp, eventually};

const ALWAYS: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// A fault after three claims, of which the process that confirmed them is a victim, too.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    ProcessKilled,
    RedisKilled,
    RedisEmptied,
    ReplicaPromoted,
}

/// Users whose claims were confirmed before the fault and are known after it, of three.
async fn survivors(level: &str, fault: Fault) -> usize {
    let settings: &[&str] = if level == "fsync" { &ALWAYS } else { &[] };
    let ((mut server, port), (replica, _)) =
        (RedisServer::on_tcp(settings), RedisServer::on_tcp(&[]));
    make_replica(&replica, port).await;
    eventually("the replica follows", async || {
        ask::<String>(&replica, &["INFO", "replication"]).await.contains("master_link_status:up")
    })
    .await;
    let address = Switch::to(&server.url()).await;
    let app = on(address.url(), &[]).await;
    let coupon = app.create_flash(10).await;
    app.app.leaders.first().run_once().await.expect("both stores answer");
    eventually("the replica has the sale", async || {
        ask::<i64>(&server, &["WAIT", "1", "100"]).await == 1
    })
    .await;
    if level != "replica" {
        // Its link broke just before the claims, which replication doesn't hold up.
        make_master(&replica).await;
    }
    let roles = if level == "postgres" { "api,worker" } else { "api" };
    let mut process = Process::serve(&app, &["--roles", roles, "--durability", level]);
    let url = process.url().await;
    let mut orders = Vec::new();
    for user in 1..=3 {
        let (status, body) = try_claim(&app, &url, user, coupon).await.expect("it answers");
        assert!(matches!(status, 201 | 202), "{level}: {status} {body}");
        orders.push(body["order_id"].clone());
    }
    process.kill();
    match fault {
        Fault::ProcessKilled => {}
        Fault::RedisKilled => {
            server.kill();
            server.start_again();
        }
        Fault::RedisEmptied => {
            let _: String = app.redis(&["FLUSHALL"]).await;
        }
        Fault::ReplicaPromoted => {
            server.kill();
            make_master(&replica).await;
            address.lead_to(&replica.url());
        }
    }
    // The killed process has handed nothing in.
    app.execute("DELETE FROM processes").await;
    app.execute("DELETE FROM unwritten_claims").await;
    eventually("Redis is back", async || app.app.stores.fleet.first().check().await.is_ok()).await;
    app.recover().await;
    let mut known = 0;
    for (user, order) in (1..=3).zip(&orders) {
        let again = app.claim(user, coupon).await;
        if again.status == 409 {
            assert_eq!(again.body["order_id"], *order, "{level} {fault:?}");
            known += 1;
        }
    }
    app.write_orders().await;
    if known < 3 {
        // The comparison names what was lost.
        app.expect_disagreements();
    }
    known
}

async fn survive(level: &str, expected: [usize; 4]) {
    use Fault::*;
    let faults = [ProcessKilled, RedisKilled, RedisEmptied, ReplicaPromoted];
    for (fault, expected) in faults.into_iter().zip(expected) {
        assert_eq!(survivors(level, fault).await, expected, "{level}: {fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_survives_the_process() {
    survive("memory", [3, 0, 0, 0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fsync_survives_a_killed_redis() {
    survive("fsync", [3, 3, 0, 0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_survives_the_master_where_the_replica_is_promoted() {
    survive("replica", [3, 0, 0, 3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_survives_every_loss_of_redis() {
    survive("postgres", [3, 3, 3, 3]).await;
}

async fn set(app: &TestApp, name: &str, value: &str) {
    let _: String = app.redis(&["CONFIG", "SET", name, value]).await;
    app.app.durability.first().run_once().await.expect("Redis answers");
}

async fn told(app: &TestApp, user: i64, coupon: CouponId) -> (u16, String) {
    let reply = app.claim(user, coupon).await;
    (reply.status, reply.body["code"].as_str().unwrap_or_default().to_owned())
}

fn unavailable() -> (u16, String) {
    (503, "unavailable".to_owned())
}

/// Units left, in Redis.
async fn left(app: &TestApp, coupon: CouponId) -> i64 {
    app.redis(&["HGET", &app.keys().coupon(coupon), "stock"]).await
}

#[tokio::test]
async fn a_claim_that_would_not_be_on_disk_is_not_confirmed_and_takes_no_unit() {
    let (_server, app) = start_with_options(&ALWAYS, &["--sold-out-memory-ms", "0"]).await;
    let coupon = app.create_flash(5).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    for (name, bad, good) in
        [("appendfsync", "everysec", "always"), ("no-appendfsync-on-rewrite", "yes", "no")]
    {
        set(&app, name, bad).await;
        assert_eq!(told(&app, 2, coupon).await, unavailable());
        assert_eq!(told(&app, 1, coupon).await, unavailable(), "a repeat carries a promise, too");
        assert_eq!(left(&app, coupon).await, 4);
        let ready = app.get("/readyz", "").await;
        assert_eq!((ready.status, &ready.body["status"]), (503, &json!("unavailable")));
        let why = ready.body["durability"].as_str().expect("a text");
        assert!(why.starts_with("fsync isn't kept: Redis has no"), "{why}");
        set(&app, name, good).await;
        assert_eq!(app.get("/readyz", "").await.body["durability"], "ok");
        assert_eq!(told(&app, 1, coupon).await, (409, "already_claimed".to_owned()));
    }
    assert_eq!(app.claim(2, coupon).await.status, 202);
    app.write_orders().await;
}

/// Keys that make a rewrite of the file take a while.
async fn slow_rewrites(app: &TestApp) {
    let fill = "for i = 1, 20 do redis.call('SET', KEYS[1] .. i, 'x') end return 'OK'";
    let _: String = app.redis(&["EVAL", fill, "1", "filler"]).await;
    let _: String = app.redis(&["CONFIG", "SET", "rdb-key-save-delay", "100000"]).await;
}

async fn is_rewriting(app: &TestApp) -> bool {
    let info: String = app.redis(&["INFO", "persistence"]).await;
    info.contains("aof_rewrite_in_progress:1")
}

#[tokio::test]
async fn a_file_that_is_written_for_the_first_time_holds_no_claim_yet() {
    let (_server, app) =
        start_with_options(&["--appendfsync", "always"], &["--durability", "fsync"]).await;
    let coupon = app.create_flash(5).await;
    assert_eq!(told(&app, 1, coupon).await, unavailable());
    slow_rewrites(&app).await;
    set(&app, "appendonly", "yes").await;
    assert!(is_rewriting(&app).await);
    assert_eq!(told(&app, 1, coupon).await, unavailable());
    eventually("the file is complete", async || !is_rewriting(&app).await).await;
    app.app.durability.first().run_once().await.expect("Redis answers");
    assert_eq!(app.claim(1, coupon).await.status, 202);
    // Claims go into the complete file while it is rewritten.
    let _: String = app.redis(&["BGREWRITEAOF"]).await;
    eventually("it is rewritten", async || is_rewriting(&app).await).await;
    app.app.durability.first().run_once().await.expect("Redis answers");
    assert_eq!(app.claim(2, coupon).await.status, 202);
    app.write_orders().await;
}

#[tokio::test]
async fn a_claim_or_a_repeat_that_no_replica_has_is_not_confirmed() {
    let ((server, port), (replica, _)) = (RedisServer::on_tcp(&[]), RedisServer::on_tcp(&[]));
    make_replica(&replica, port).await;
    let arguments =
        [&IMPATIENT_WITH_REDIS[..], &["--durability", "replica", "--sold-out-memory-ms", "0"]];
    let app = on(&server.url(), &arguments.concat()).await;
    let coupon = app.create_flash(5).await;
    eventually("the replica follows", async || app.claim(1, coupon).await.status != 503).await;
    replica.pause();
    assert_eq!(told(&app, 2, coupon).await, unavailable());
    assert_eq!(told(&app, 2, coupon).await, unavailable(), "a repeat carries a promise, too");
    replica.resume();
    eventually("the replica has it", async || told(&app, 2, coupon).await.0 == 409).await;
    assert_eq!(left(&app, coupon).await, 3);
    app.write_orders().await;
}
