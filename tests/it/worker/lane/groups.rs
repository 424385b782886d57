//! A group of the order log that has vanished: made again, and an alarm where orders may be gone with it.

use flash_sale::app::App;
use flash_sale::base::limits;
use flash_sale::kit::postgres;
use flash_sale::sale::ids::Lane;
use flash_sale::sale::log::EntryId;
use flash_sale::worker::{LaneWorker, PassError, consumer_name};

use super::worker_of;
use crate::support::lines::{Lines, number};
use crate::support::{Bounded, TestApp, bounded, calls, lane, patience};

fn data_lost(app: &App) -> f64 {
    number(app, "flash_sale_redis_data_lost_total")
}

/// Waits until the tasks of this instance have ended.
async fn idle(app: &App) {
    app.shutdown.tracker().close();
    bounded("the stores are compared", app.shutdown.tracker().wait()).await;
    app.shutdown.tracker().reopen();
}

#[tokio::test]
async fn a_vanished_group_is_an_alarm_if_the_stores_differ() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let another = app.another_instance().await;
    let key = app.log(lane());
    let mut worker = worker_of(another.clone(), (&app.config).into());
    let lines = Lines::heard();
    let vanish = async || {
        let gone: i64 = app.redis(&["XGROUP", "DESTROY", &key, "order-writers"]).await;
        assert_eq!(gone, 1);
    };
    // The first group of a log is no loss.
    worker.ensure_group().bounded().await.expect("Redis answers");
    idle(&another).await;
    assert_eq!((data_lost(&another), lines.count("had vanished")), (0.0, 0));
    worker.ensure_group().bounded().await.expect("Redis answers");
    assert_eq!(lines.count("had vanished"), 0, "it is there");

    // No sale can have lost an order.
    vanish().await;
    worker.ensure_group().bounded().await.expect("Redis answers");
    idle(&another).await;
    assert_eq!((data_lost(&another), lines.count("WARN")), (0.0, 1));

    let coupon = app.create_flash(10).await;
    let order = app.order(1, coupon).await;
    vanish().await;
    worker.ensure_group().bounded().await.expect("Redis answers");
    idle(&another).await;
    assert_eq!((data_lost(&another), lines.count("ALARM")), (0.0, 0), "the stores agree");
    app.forget_buyer(coupon, 1).await;
    vanish().await;
    worker.ensure_group().bounded().await.expect("Redis answers");
    idle(&another).await;
    assert_eq!(data_lost(&another), 1.0);
    assert_eq!(lines.count("ALARM: the group of the order log had vanished"), 1);
    assert!(lines.count(&app.inner(order).to_string()) >= 1, "the order is named");
}

#[tokio::test]
async fn a_lost_log_closes_its_lane_and_no_group_is_made() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let another = app.another_instance().await;
    let mut worker = worker_of(another.clone(), (&app.config).into());
    worker.ensure_group().bounded().await.expect("Redis answers");
    assert_eq!(app.claim(1, coupon).await.status, 202);
    let key = app.log(lane());
    let gone: i64 = app.redis(&["DEL", &key]).await;
    assert_eq!(gone, 1);
    another.lanes.take_suspicion();
    for _ in 0..2 {
        let refused = worker.ensure_group().bounded().await;
        assert!(matches!(refused, Err(PassError::LogLost)), "{refused:?}");
        assert!(another.lanes.take_suspicion(), "the lane is looked at");
    }
    let there: i64 = app.redis(&["EXISTS", &key]).await;
    assert_eq!(there, 0);
    worker.log().begin_anew().await.expect("Redis answers");
    worker.ensure_group().bounded().await.expect("Redis answers");
    let state = worker.log().state().await.expect("Redis answers");
    assert_eq!((state.last, state.delivered), (EntryId::default(), Some(EntryId::default())));
}

/// Even where the stores agree: what was lost may be in neither.
#[tokio::test]
async fn a_log_that_vanished_is_an_alarm_in_any_case() {
    let app = TestApp::start().await;
    app.create_flash(10).await;
    let another = app.another_instance().await;
    let mut worker = worker_of(another.clone(), (&app.config).into());
    worker.ensure_group().bounded().await.expect("Redis answers");
    idle(&another).await;
    let lines = Lines::heard();
    let key = app.log(lane());
    let mut vanish = async || {
        let gone: i64 = app.redis(&["DEL", &key]).await;
        assert_eq!(gone, 1);
        worker.ensure_group().bounded().await.expect("no order was promised");
        idle(&another).await;
    };
    vanish().await;
    assert_eq!((data_lost(&another), lines.count("run `flash-sale reconcile`")), (1.0, 1));
    another.stores.pool.close().await;
    vanish().await;
    assert_eq!((data_lost(&another), lines.count("the stores can't be compared")), (2.0, 1));
}

#[tokio::test]
async fn the_first_log_of_a_lane_with_a_sale_is_an_alarm_if_the_stores_differ() {
    let app = TestApp::configured(&["--lanes", "2"]).await;
    app.expect_disagreements();
    let coupon = app.create_flash(100).await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
             SELECT n, {coupon}, 'flash', n, now() FROM generate_series(1, 25) AS n;
         UPDATE flash_sales SET sold = 25"
    ))
    .await;
    let lines = Lines::heard();
    let look = async |lane, alarms| {
        let another = app.another_instance().await;
        let settings = (&app.config).into();
        let mut worker = LaneWorker::new(another.clone(), calls(lane), consumer_name(), settings);
        worker.ensure_group().bounded().await.expect("Redis answers");
        idle(&another).await;
        assert_eq!(data_lost(&another), alarms, "lane {lane}");
    };
    let other = Lane::all(2).find(|lane| *lane != coupon.lane()).expect("there are two lanes");
    look(other, 0.0).await;
    // The group is there by now, and neither it nor its log is new.
    look(other, 0.0).await;
    assert_eq!(lines.count("ERROR"), 0);
    let mut sale = app.create_flash(1).await;
    while sale.lane() != other {
        sale = app.create_flash(1).await;
    }
    look(coupon.lane(), 1.0).await;
    let spelled_out = limits::LOGGED_DISAGREEMENTS_MAX;
    assert_eq!(lines.count("ERROR"), 1 + spelled_out, "the others are told by `reconcile`");
    // A group alone, whose log is there: this worker has seen none before.
    let log = app.log(coupon.lane());
    let gone: i64 = app.redis(&["XGROUP", "DESTROY", &log, "order-writers"]).await;
    assert_eq!(gone, 1);
    look(coupon.lane(), 0.0).await;
}

#[tokio::test]
async fn a_comparison_of_the_stores_ends_with_the_service() {
    let app = TestApp::start().await;
    app.create_flash(10).await;
    let another = app.another_instance().await;
    let mut worker = worker_of(another.clone(), (&app.config).into());
    worker.ensure_group().bounded().await.expect("Redis answers");
    idle(&another).await;
    let mut locked = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
    sqlx::query("LOCK TABLE orders, flash_sales IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *locked)
        .await
        .expect("no session has them");
    let gone: i64 = app.redis(&["XGROUP", "DESTROY", &app.log(lane()), "order-writers"]).await;
    assert_eq!(gone, 1);
    let lines = Lines::heard();
    worker.ensure_group().bounded().await.expect("Redis answers");
    app.a_session_waits_for_a_row().await;
    assert!(bounded("the service stops", another.shutdown.stop(patience())).await);
    assert_eq!((data_lost(&another), lines.count("ALARM")), (0.0, 0));
    locked.rollback().await.expect("Postgres answers");
}
