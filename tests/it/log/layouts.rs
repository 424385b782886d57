//! Two logs in a lane: older versions write and read the log of claims, and this one reads both.

use flash_sale::sale::ids::CouponId;
use flash_sale::sale::keys::{LogId, LogLayout};
use flash_sale::worker;
use flash_sale::worker::{LaneWorker, WorkerSettings, consumer_name};
use sqlx::Connection;

use crate::support::process::rows;
use crate::support::{
    Bounded, TestApp, calls, eventually, lane, older_process, patience, user, write_all,
};

const OLDER: LogLayout = LogLayout::Claims;

fn older_log() -> LogId {
    LogId { lane: lane(), layout: OLDER }
}

async fn lengths(app: &TestApp) -> [usize; 2] {
    let older = app.redis(&["XLEN", &app.keys().log(older_log())]).await;
    [older, app.redis(&["XLEN", &app.log(lane())]).await]
}

async fn claim(app: &flash_sale::app::App, coupon: CouponId, id: i64) {
    let claimed = app.claims.claim(coupon, user(id)).await.expect("both stores answer");
    assert_eq!(claimed.status().code, "accepted");
}

async fn write_log(app: &TestApp, log: LogId) -> usize {
    let settings = WorkerSettings::from(&app.config);
    let mut worker = LaneWorker::new(app.app.clone(), log, consumer_name(), settings);
    worker.ensure_group().bounded().await.expect("Redis answers");
    write_all(&mut worker).await.inserted
}

#[tokio::test]
async fn the_older_log_is_written_as_long_as_an_older_process_lives() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    let older = older_process(&app).await;
    let during = app.another_instance().await;
    claim(&during, coupon, 1).await;
    during.layout.pass().bounded().await.expect("Postgres answers");
    claim(&during, coupon, 2).await;
    assert_eq!(lengths(&app).await, [2, 0]);

    older.close().await.expect("it goes");
    eventually("the process changes over", async || {
        during.layout.pass().bounded().await.expect("Postgres answers");
        during.layout.get() == LogLayout::Calls
    })
    .await;
    claim(&during, coupon, 3).await;
    assert_eq!(lengths(&app).await, [2, 1]);

    let report = app.reconcile().await;
    assert!(report.agrees(), "{:?}", report.disagreements);
    assert_eq!(report.in_flight, 3);
    assert_eq!((write_log(&app, older_log()).await, write_log(&app, calls(lane())).await), (2, 1));
    let report = app.reconcile().await;
    assert!(report.agrees() && report.in_flight == 0, "{:?}", report.disagreements);
}

/// A process that slept through the change could otherwise append to a log that no worker reads any more.
#[tokio::test]
async fn a_lane_with_calls_takes_no_entry_into_the_older_log() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    let older = older_process(&app).await;
    let sleeping = app.another_instance().await;
    claim(&sleeping, coupon, 1).await;
    claim(&app.app, coupon, 2).await;
    assert_eq!(lengths(&app).await, [1, 1]);
    claim(&sleeping, coupon, 3).await;
    assert_eq!((lengths(&app).await, sleeping.layout.get()), ([1, 2], LogLayout::Calls));
    older.close().await.expect("it goes");
    assert_eq!(write_log(&app, older_log()).await, 1);
}

/// The older log that is not there has not been lost: it was never begun.
#[tokio::test]
async fn a_process_changes_over_in_a_lane_without_an_older_log() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    let older = older_process(&app).await;
    let sleeping = app.another_instance().await;
    claim(&app.app, coupon, 1).await;
    claim(&sleeping, coupon, 2).await;
    assert_eq!((lengths(&app).await, sleeping.layout.get()), ([0, 2], LogLayout::Calls));
    older.close().await.expect("it goes");
}

#[tokio::test]
async fn workers_write_both_logs() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    let older = older_process(&app).await;
    let during = app.another_instance().await;
    worker::start(&app.app, &app.config);
    for id in 1..=3 {
        claim(&during, coupon, id).await;
    }
    claim(&app.app, coupon, 4).await;
    eventually("both logs are written", async || rows(&app).await == 4).await;
    older.close().await.expect("it goes");
    assert!(app.app.shutdown.stop(patience()).await);
}
