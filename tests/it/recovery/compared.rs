//! A recovery that takes sales over by beat and counters is followed by a comparison, with any period.

use std::time::Duration;

use private_servers::testing::RedisServer;

use crate::faults::recovery::{keep, sell, start_with_options};
use crate::support::{Bounded, TestApp, eventually};

const RUNS: &str = "SELECT count(*) FROM reconcile_runs";

/// An app whose Redis keeps all that it has when it is started anew.
async fn start(lanes: &str) -> (RedisServer, TestApp) {
    let options = ["--appendonly", "yes", "--appendfsync", "always"];
    start_with_options(&options, &["--lanes", lanes, "--reconcile-period-ms", "0"]).await
}

/// Redis is started anew. All orders count as older than the last beat, which is what the look at the lanes looks at.
async fn restart(server: &mut RedisServer, app: &TestApp) {
    keep(app).await;
    app.execute("UPDATE lane_beats SET beat_at = now() + interval '1 minute'").await;
    server.kill();
    server.start_again();
    let ping = redis::cmd("PING");
    let answers = async || app.app.stores.redis.query::<String>(&ping).await.is_ok();
    eventually("Redis answers", answers).await;
    keep(app).await;
    assert_eq!(app.number("SELECT count(*) FROM recoveries WHERE sales_built > 0").await, 0);
}

async fn compare(app: &TestApp) {
    app.app.reconciler.pass(Duration::ZERO).bounded().await.expect("both stores answer");
}

#[tokio::test]
async fn an_opening_by_beat_and_counters_is_compared_once() {
    let (mut server, app) = start("1").await;
    let coupon = app.create_flash(10).await;
    sell(&app, coupon, 1..=4).await;
    app.write_orders().await;
    compare(&app).await;
    assert_eq!(app.number(RUNS).await, 0, "none is due");
    // No counter tells: the unit of a live order is on sale again.
    app.forget_buyer(coupon, 2).await;
    let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", "1"]).await;
    restart(&mut server, &app).await;
    assert_eq!(app.number("SELECT sales_kept FROM recoveries").await, 1);

    let other = app.another_instance().await;
    let (first, second) = tokio::join!(
        app.app.reconciler.pass(Duration::ZERO),
        other.reconciler.pass(Duration::ZERO)
    );
    assert!(first.is_ok() && second.is_ok());
    compare(&app).await;
    assert_eq!(app.number(RUNS).await, 1, "once, and by one process");
    let missing = "SELECT count(*) FROM reconcile_runs, jsonb_array_elements(findings) AS one
                   WHERE one->>'code' = 'buyer_missing'";
    assert_eq!(app.number(missing).await, 1);
    app.expect_disagreements();
}

#[tokio::test]
async fn one_comparison_follows_the_openings_of_all_lanes() {
    let (mut server, app) = start("3").await;
    for _ in 0..3 {
        let coupon = app.create_flash(5).await;
        sell(&app, coupon, 1..=2).await;
    }
    app.write_orders().await;
    restart(&mut server, &app).await;
    assert_eq!(app.number("SELECT count(*) FROM recoveries WHERE sales_kept = 1").await, 3);
    // Another lane is still recovering.
    app.execute("UPDATE lanes SET state = 'recovering', reason = 'by hand', closed_at = now() WHERE lane = 2").await;
    compare(&app).await;
    assert_eq!(app.number(RUNS).await, 0);
    app.execute("UPDATE lanes SET state = 'open' WHERE lane = 2").await;
    compare(&app).await;
    compare(&app).await;
    assert_eq!(app.number(RUNS).await, 1);
}

/// A lane that stays closed holds up the comparison of the others for a while only.
#[tokio::test]
async fn a_lane_that_stays_closed_does_not_hold_the_comparison_up() {
    let (mut server, app) = start("2").await;
    let coupon = app.create_flash(5).await;
    sell(&app, coupon, 1..=2).await;
    app.write_orders().await;
    restart(&mut server, &app).await;
    let other = (coupon.lane().get() + 1) % 2;
    app.execute(&format!("UPDATE lanes SET state = 'recovering', reason = 'by hand', closed_at = now() WHERE lane = {other}")).await;
    compare(&app).await;
    assert_eq!(app.number(RUNS).await, 0);
    app.execute("UPDATE lane_beats SET unchecked_since = unchecked_since - interval '1 hour'")
        .await;
    compare(&app).await;
    assert_eq!(app.number(RUNS).await, 1);
    app.execute("UPDATE lanes SET state = 'open'").await;
}
