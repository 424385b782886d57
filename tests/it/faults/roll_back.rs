//! A Redis that goes back in time: the decisions of Postgres hold again.

use std::time::Duration;

use flash_sale::base::clock::Clock;
use flash_sale::store::ids::CouponId;
use private_servers::testing::RedisServer;
use tokio::time::{Instant, sleep};

use super::failover::ask;
use super::recovery::LEADERS;
use crate::support::process::Process;
use crate::support::servers::Addresses;
use crate::support::{TestApp, bounded, eventually, shared};

/// An app on a Redis that a test can put back to an older state.
async fn start() -> (RedisServer, TestApp) {
    let server = RedisServer::start(&[]);
    let at = Addresses { redis_url: server.url(), ..shared().clone() };
    (server, TestApp::on(&at, &[], Clock::System).await)
}

/// From now on Redis has the data of its SAVE.
async fn roll_back(server: &mut RedisServer, app: &TestApp) {
    server.kill();
    server.start_again();
    let ping = redis::cmd("PING");
    let answers = async || app.app.stores.fleet.first().query::<String>(&ping).await.is_ok();
    eventually("the old connection has been noticed to be gone", answers).await;
}

async fn refusal(app: &TestApp, user: i64, coupon: CouponId) -> (u16, String) {
    let reply = app.claim(user, coupon).await;
    (reply.status, reply.body["code"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_sale_that_was_paused_or_ended_is_so_again_after_a_roll_back() {
    let (mut server, app) = start().await;
    let sales = [app.create_flash(3).await, app.create_flash(3).await, app.create_flash(3).await];
    let [paused, ended, restocked] = sales;
    let _: String = app.redis(&["SAVE"]).await;
    assert_eq!(app.r#move(paused, "pause").await.status, 200);
    assert_eq!(app.r#move(ended, "end").await.status, 200);
    assert_eq!(app.restock(restocked, 2, "more").await.status, 200);

    roll_back(&mut server, &app).await;
    assert_eq!(refusal(&app, 1, paused).await, (503, "recovering".to_owned()));
    app.recover().await;
    assert_eq!(app.app.coupon_changes.run_once().await.unwrap(), 0, "Postgres has noted all of it");
    assert_eq!(refusal(&app, 1, paused).await, (409, "sale_paused".to_owned()));
    assert_eq!(refusal(&app, 1, ended).await, (410, "sale_ended".to_owned()));
    for user in 1..=5 {
        assert_eq!(app.claim(user, restocked).await.status, 202, "user {user}");
    }
    assert_eq!(refusal(&app, 6, restocked).await.0, 410);
    app.write_orders().await;
}

#[tokio::test]
async fn a_worker_applies_what_was_decided_by_itself() {
    let (mut server, app) = start().await;
    let coupon = app.create_flash(3).await;
    let _worker = Process::serve(&app, &["--roles", "worker"]);
    eventually("the worker keeps the lanes", async || app.number(LEADERS).await == 1).await;
    let _: String = app.redis(&["SAVE"]).await;
    assert_eq!(app.r#move(coupon, "pause").await.status, 200);
    roll_back(&mut server, &app).await;
    eventually("the sale is paused", async || refusal(&app, 1, coupon).await.0 == 409).await;
    // A user who was faster than the worker has a unit.
    app.write_orders().await;
}

/// Like a replica that has been synchronised anew and promoted: the run is the same, and its data went back.
#[tokio::test]
async fn a_comparison_finds_an_older_revision_and_has_the_sale_built_anew() {
    let (_server, app) = start().await;
    let coupon = app.create_flash(3).await;
    assert_eq!(app.r#move(coupon, "pause").await.status, 200);
    let key = app.keys().coupon(coupon);
    let older: i64 = app.redis(&["HSET", &key, "revision", "1", "state", "active"]).await;
    assert_eq!(older, 0);
    app.execute("UPDATE coupons SET updated_at = now() - interval '1 hour'").await;
    let found = app.reconcile().await;
    let codes: Vec<_> = found.disagreements.iter().map(|found| found.code()).collect();
    assert_eq!(codes, ["revision_differs"]);
    assert_eq!(app.claim(1, coupon).await.status, 202, "the lane is still open");
    app.compared().await;
    app.recover().await;
    assert_eq!(refusal(&app, 2, coupon).await, (409, "sale_paused".to_owned()));
    app.write_orders().await;
}

// ---- long ----

/// Incidents of each kind.
const INCIDENTS: usize = 12;

async fn epoch(app: &TestApp) -> i64 {
    app.number("SELECT epoch FROM lanes WHERE lane = 0").await
}

/// Waits until the lane is open, and looks have found it in order.
async fn open(app: &TestApp) {
    let is_open = "SELECT count(*) FROM lanes WHERE state = 'open' AND lane = 0";
    eventually("the lane is open", async || app.number(is_open).await == 1).await;
    sleep(Duration::from_secs(3)).await;
}

/// Time from now until Postgres has another epoch than this one.
async fn closed_after(app: &TestApp, before: i64) -> Duration {
    let began = Instant::now();
    let closed = async {
        while epoch(app).await == before {
            sleep(Duration::from_millis(2)).await;
        }
    };
    bounded("the lane is closed", closed).await;
    began.elapsed()
}

fn print(incident: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let (median, most) = (times[times.len() / 2].as_millis(), times[times.len() - 1].as_millis());
    let count = times.len();
    println!("{incident}: {count} times, closed after {median} ms (median), {most} ms (most)");
}

/// Prints how long after the first reply of Redis the lane is closed in Postgres, after an older file was put in its
/// place.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute, and prints what it saw"]
async fn a_roll_back_is_noticed_within_a_second() {
    let (mut server, app) = start().await;
    let coupon = app.create_flash(1_000).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    let _process = Process::serve(&app, &[]);
    let mut times = Vec::new();
    for _ in 0..INCIDENTS {
        open(&app).await;
        let _: String = ask(&server, &["SAVE"]).await;
        let before = epoch(&app).await;
        server.kill();
        // Returns with the first reply to a PING.
        server.start_again();
        times.push(closed_after(&app, before).await);
    }
    print("an older file in its place", times);
    open(&app).await;
    assert_eq!(app.number("SELECT count(*) FROM recoveries WHERE opened_at IS NULL").await, 0);
    assert_eq!(refusal(&app, 1, coupon).await, (409, "already_claimed".to_owned()));
}
