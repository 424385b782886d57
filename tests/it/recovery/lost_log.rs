//! The order log is deleted, with orders that no worker has read.

use std::time::Duration;

use flash_sale::app::start_housekeeping;
use flash_sale::store::ids::CouponId;
use flash_sale::worker;
use tokio::time::sleep;

use super::reported::figure;
use crate::faults::recovery::{LEADERS, code, command, keep, sell};
use crate::support::{Bounded, TestApp, bounded, eventually, lane, patience, proxy_before};

/// A sale of 10 units that three users have claimed; their log is deleted.
async fn with_lost_log() -> (TestApp, CouponId) {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    // The first job of a process hands all unwritten claims in.
    app.app.unwritten_job().bounded().await;
    sell(&app, coupon, 1..=1).await;
    app.write_orders().await;
    keep(&app).await;
    sell(&app, coupon, 2..=3).await;
    let deleted: i64 = app.redis(&["DEL", &app.log(coupon.lane())]).await;
    assert_eq!(deleted, 1);
    (app, coupon)
}

async fn log_is_there(app: &TestApp, coupon: CouponId) -> bool {
    app.redis::<i64>(&["EXISTS", &app.log(coupon.lane())]).await == 1
}

/// The three orders are rows, and the sale goes on.
async fn assert_nothing_was_lost(app: &TestApp, coupon: CouponId) {
    assert_eq!(app.number("SELECT count(*) FROM orders WHERE status = 'unpaid'").await, 3);
    assert_eq!(app.number("SELECT count(*) FROM dead_letters").await, 0);
    for user in 1..=3 {
        assert_eq!(code(app, user, coupon).await, (409, "already_claimed".to_owned()));
    }
    sell(app, coupon, 4..=10).await;
    assert_eq!(code(app, 11, coupon).await, (410, "sold_out".to_owned()));
    app.write_orders().await;
    assert!(app.reconcile().await.agrees());
}

#[tokio::test]
async fn no_claim_begins_a_lost_log_anew_and_its_orders_become_rows() {
    let (app, coupon) = with_lost_log().await;
    assert_eq!(app.claim(4, coupon).await.refusal(), (503, "recovering"));
    assert!(!log_is_there(&app, coupon).await, "a new log would hide the loss");
    app.recover().await;
    let closed = "SELECT count(*) FROM recoveries WHERE reason = 'Redis has lost the order log'";
    assert_eq!(app.number(closed).await, 1);
    assert_nothing_was_lost(&app, coupon).await;
}

#[tokio::test]
async fn a_worker_does_not_begin_a_lost_log_anew() {
    let (app, coupon) = with_lost_log().await;
    let begun = app.workers().remove(0).ensure_group().bounded().await;
    assert!(begun.is_err() && !log_is_there(&app, coupon).await);
    app.recover().await;
    assert_nothing_was_lost(&app, coupon).await;
}

/// Any program's XADD makes the log again, with an entry that no worker can read.
#[tokio::test]
async fn a_log_that_another_program_begins_anew_is_lost_all_the_same() {
    let (app, coupon) = with_lost_log().await;
    let _: String = app.redis(&["XADD", &app.log(coupon.lane()), "*", "x", "y"]).await;
    sell(&app, coupon, 4..=4).await;
    assert!(
        app.workers().remove(0).ensure_group().bounded().await.is_err(),
        "its first order isn't there"
    );
    app.recover().await;
    app.write_orders().await;
    assert_eq!(app.number("SELECT count(*) FROM orders WHERE status = 'unpaid'").await, 4);
    assert_eq!(app.number("SELECT count(*) FROM dead_letters WHERE user_id IS NOT NULL").await, 0);
    assert!(app.reconcile().await.agrees());
}

/// The lane is closed for another reason before a worker has looked at the log.
#[tokio::test]
async fn a_log_that_another_program_begins_anew_is_lost_to_any_recovery() {
    let (app, coupon) = with_lost_log().await;
    let _: String = app.redis(&["XADD", &app.log(coupon.lane()), "*", "x", "y"]).await;
    command(&app, &["recover", "--lane", "0"]).await;
    // Without a worker beside, this may not end the recovery.
    let _ = bounded("the end of the job", app.app.leaders.first().run_once()).await;
    app.recover().await;
    app.write_orders().await;
    assert_eq!(app.number("SELECT count(*) FROM orders WHERE status = 'unpaid'").await, 3);
    assert!(app.reconcile().await.agrees());
}

#[tokio::test]
async fn a_process_that_does_not_reach_redis_leaves_the_lanes_to_another_one() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    sell(&app, coupon, 1..=3).await;
    app.write_orders().await;
    // Each connection begins with a question about the server.
    let proxy = proxy_before(&app, "INFO").await;
    let other = app.another_instance_behind(&proxy).await;
    app.app.leaders.first().give_up().await;
    bounded("the end of the job", other.leaders.first().run_once())
        .await
        .expect("both stores answer");
    assert_eq!(app.number(LEADERS).await, 1);
    proxy.cut().await;
    let _: i64 = app.redis(&["DEL", &app.keys().lane(lane())]).await;
    eventually("another process recovers the lane", async || {
        assert!(bounded("the end of the job", other.leaders.first().run_once()).await.is_err());
        let _ = app.app.leaders.first().run_once().bounded().await;
        app.number("SELECT count(*) FROM recoveries WHERE opened_at IS NOT NULL").await == 1
    })
    .await;
    assert_nothing_was_lost(&app, coupon).await;
}

#[tokio::test]
async fn a_log_that_has_lost_its_group_alone_is_not_lost() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    let worker = app.workers().remove(0);
    worker.ensure_group().bounded().await.expect("it is begun");
    for user in 1..=3 {
        sell(&app, coupon, user..=user).await;
        app.write_orders().await;
        worker.tidy_up_job().bounded().await.expect("Redis answers");
        let key = app.log(coupon.lane());
        let _: i64 = app.redis(&["XGROUP", "DESTROY", &key, "order-writers"]).await;
        worker.ensure_group().bounded().await.expect("it is created again");
    }
    keep(&app).await;
    assert_eq!(app.number("SELECT count(*) FROM recoveries").await, 0);
}

/// The buyers' orders are in no store then but the memory of the process that has promised them.
#[tokio::test]
async fn unwritten_claims_outlive_a_lost_log() {
    let (app, coupon) = with_lost_log().await;
    for _ in 0..4 {
        app.app.unwritten_job().bounded().await;
        sleep(Duration::from_millis(500)).await;
    }
    app.lose_sale(coupon).await;
    app.recover().await;
    assert_nothing_was_lost(&app, coupon).await;
}

/// As in a service: no test asks the leader.
#[tokio::test]
async fn a_service_comes_back_from_a_lost_log_by_itself() {
    let (app, coupon) = with_lost_log().await;
    worker::start(&app.app, &app.config);
    start_housekeeping(&app.app);
    let orders = "SELECT count(*) FROM orders WHERE status = 'unpaid'";
    eventually("the orders are rows", async || app.number(orders).await == 3).await;
    eventually("claims are taken", async || app.claim(4, coupon).await.status == 202).await;
    assert!(app.app.shutdown.stop(patience()).await);
}

/// Another program's SET in the place of the log, whether a claim was ever promised or not.
#[tokio::test]
async fn a_key_of_another_type_in_the_place_of_a_log_is_moved_aside() {
    for sold in [3, 0] {
        let app = TestApp::start().await;
        let coupon = app.create_flash(10).await;
        app.app.unwritten_job().bounded().await;
        keep(&app).await;
        sell(&app, coupon, 1..=sold).await;
        let log = app.log(lane());
        let _: String = app.redis(&["SET", &log, "of another program"]).await;
        assert_eq!(app.claim(4, coupon).await.refusal(), (503, "recovering"));
        let begun = app.workers().remove(0).ensure_group().bounded().await;
        assert!(begun.is_err(), "{begun:?}");
        app.recover().await;
        app.recover().await;
        assert_eq!(
            app.number(
                "SELECT count(*) FROM recoveries WHERE reason = 'Redis has lost the order log'"
            )
            .await,
            1
        );
        // The epoch of the attempt that has moved it.
        let moved: Vec<String> = app.redis(&["KEYS", &format!("{log}:[0-9]*")]).await;
        let kept: String = app.redis(&["GET", &moved[0]]).await;
        assert_eq!(kept, "of another program");
        sell(&app, coupon, sold + 1..=3).await;
        app.write_orders().await;
        assert_nothing_was_lost(&app, coupon).await;
    }
}

/// All were promised after the last check.
#[tokio::test]
async fn orders_of_a_lost_log_that_have_become_rows_are_no_alarm() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    app.app.unwritten_job().bounded().await;
    keep(&app).await;
    sell(&app, coupon, 1..=3).await;
    let deleted: i64 = app.redis(&["DEL", &app.log(coupon.lane())]).await;
    assert_eq!(deleted, 1);
    app.recover().await;
    let lost = figure(&app.app.metrics.page(), "flash_sale_redis_data_lost_total");
    app.workers().remove(0).tidy_up_job().bounded().await.expect("Redis answers");
    assert_eq!(figure(&app.app.metrics.page(), "flash_sale_redis_data_lost_total"), lost);
    assert_nothing_was_lost(&app, coupon).await;
}
