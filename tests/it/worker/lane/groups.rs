//! A group of the order log that has vanished: made again, and an alarm where orders may be gone with it.

use std::sync::Arc;
use std::time::Instant;

use flash_sale::app::App;
use flash_sale::base::limits;
use flash_sale::sale::ids::Lane;
use flash_sale::sale::log::EntryId;
use flash_sale::worker::{LaneWorker, PassError, consumer_name};

use super::{HOUR, due_in, worker_of, worker_with};
use crate::support::lines::{Lines, number};
use crate::support::played::{Play, Played, Still, soon};
use crate::support::{Bounded, TestApp, bounded, calls, eventually, lane, later, proxy_before};

/// Words of the statement that takes the turn to compare the stores.
const TAKES_TURN: &str = "FROM set_config('idle_in_transaction_session_timeout'";

fn data_lost(app: &App) -> f64 {
    number(app, "flash_sale_redis_data_lost_total")
}

/// Waits until the tasks of this instance have ended.
async fn idle(app: &App) {
    app.shutdown.tracker().close();
    bounded("the stores are compared", app.shutdown.tracker().wait()).await;
    app.shutdown.tracker().reopen();
}

/// Another instance, and a worker of it that has seen its group.
async fn worker_with_its_group(app: &TestApp) -> (Arc<App>, LaneWorker) {
    let another = app.another_instance().await;
    let mut worker = worker_of(another.clone(), (&app.config).into());
    worker.ensure_group().bounded().await.expect("Redis answers");
    idle(&another).await;
    (another, worker)
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
    let began = Instant::now();
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
    if began.elapsed() < limits::LOG_LINE_PAUSE {
        assert_eq!(lines.count("it begins again at the log's start"), 1, "once a second");
    }
}

#[tokio::test]
async fn a_vanished_group_is_an_alarm_once_the_sales_can_be_read() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    app.order(1, coupon).await;
    let (another, mut worker) = worker_with_its_group(&app).await;
    app.forget_buyer(coupon, 1).await;
    let gone: i64 = app.redis(&["XGROUP", "DESTROY", &app.log(lane()), "order-writers"]).await;
    assert_eq!(gone, 1);
    app.execute("ALTER TABLE flash_sales RENAME TO hidden").await;
    let lines = Lines::down_to(tracing::Level::DEBUG);
    let tries = || lines.count("the sales can't be read yet");
    let began = Instant::now();
    worker.ensure_group().bounded().await.expect("Redis answers");
    eventually("the sales are asked for", async || tries() > 0).await;
    for _ in 0..100 {
        assert_eq!(data_lost(&another), 0.0);
        assert_eq!(app.number("SELECT 1::bigint").await, 1);
    }
    let (tries, took) = (tries(), began.elapsed());
    assert!(tries <= 1 + took.as_secs() as usize, "{tries} tries in {took:?}");
    app.execute("ALTER TABLE hidden RENAME TO flash_sales").await;
    later(limits::BACKOFF_MAX).await;
    idle(&another).await;
    assert_eq!(data_lost(&another), 1.0);
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
    let missing = worker.write_pass().bounded().await.expect_err("there is no group");
    let lines = Lines::down_to(tracing::Level::DEBUG);
    worker.heal(missing).bounded().await;
    assert_eq!(lines.count("the group could not be created yet"), 1);
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
    let (another, mut worker) = worker_with_its_group(&app).await;
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

/// As when a service with a thousand lanes starts: each lane's group is new.
#[tokio::test]
async fn one_comparison_serves_all_groups_that_were_new_when_it_began() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    app.order(1, coupon).await;
    app.forget_buyer(coupon, 1).await;
    let (another, mut worker) = worker_with_its_group(&app).await;
    let mut relief = worker.relief();
    relief.ensure_group().bounded().await.expect("Redis answers");
    let key = app.log(lane());
    let vanish = async || {
        let gone: i64 = app.redis(&["XGROUP", "DESTROY", &key, "order-writers"]).await;
        assert_eq!(gone, 1);
    };
    let locked = app.holding("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE").await;
    vanish().await;
    worker.ensure_group().bounded().await.expect("Redis answers");
    app.a_session_waits_for_a_row().await;
    for _ in 0..3 {
        vanish().await;
        relief.ensure_group().bounded().await.expect("Redis answers");
    }
    locked.rollback().await.expect("Postgres answers");
    idle(&another).await;
    assert_eq!(data_lost(&another), 2.0, "the one that was under way, and one after the others");
}

/// The clock stands still, so that the comparison and the second group are of the same time.
#[tokio::test]
async fn one_comparison_serves_a_group_that_was_new_at_the_very_time_it_began() {
    let app = TestApp::start().await;
    app.create_flash(10).await;
    let (another, mut worker) = worker_with_its_group(&app).await;
    let clock = Still::begin();
    let lines = Lines::down_to(tracing::Level::DEBUG);
    for _ in 0..2 {
        let gone: i64 = app.redis(&["XGROUP", "DESTROY", &app.log(lane()), "order-writers"]).await;
        assert_eq!(gone, 1);
        worker.ensure_group().bounded().await.expect("Redis answers");
        idle(&another).await;
        assert_eq!(lines.count(TAKES_TURN), 1, "one turn to compare");
    }
    drop(clock);
}

/// No comparison can tell what was in it.
#[tokio::test]
async fn each_log_that_vanished_during_a_comparison_is_an_alarm() {
    let app = TestApp::start().await;
    app.create_flash(10).await;
    let (another, mut worker) = worker_with_its_group(&app).await;
    let locked = app.holding("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE").await;
    for _ in 0..3 {
        let gone: i64 = app.redis(&["DEL", &app.log(lane())]).await;
        assert_eq!(gone, 1);
        worker.ensure_group().bounded().await.expect("no order was promised");
    }
    locked.rollback().await.expect("Postgres answers");
    idle(&another).await;
    assert_eq!(data_lost(&another), 3.0);
}

/// The clock stands still, so that Redis has time to answer for ever.
#[tokio::test]
async fn a_comparison_of_the_stores_ends_with_the_service() {
    let app = TestApp::start().await;
    app.create_flash(10).await;
    worker_with(&app, |_| {}).await;
    let played = Played::before(app.redis_url(), |command| match command {
        [name, ..] if name == "XINFO" => Play::Later,
        _ => Play::Real,
    })
    .await;
    let another = played.process(&app).await;
    let mut worker = worker_of(another.clone(), (&app.config).into());
    worker.ensure_group().bounded().await.expect("Redis answers");
    let gone: i64 = app.redis(&["XGROUP", "DESTROY", &app.log(lane()), "order-writers"]).await;
    assert_eq!(gone, 1);
    let lines = Lines::heard();
    let clock = Still::begin();
    worker.ensure_group().bounded().await.expect("Redis answers");
    soon("the stores are compared", || !played.asked().is_empty()).await;
    another.shutdown.stop_token().cancel();
    soon("the comparison ends", || another.shutdown.tracker().is_empty()).await;
    drop(clock);
    assert_eq!((data_lost(&another), lines.count("ALARM")), (0.0, 0));
}

/// Microseconds since 1970 at which the turn to compare was last asked for.
async fn asked_for_turn(app: &TestApp) -> i64 {
    app.number(
        "SELECT coalesce((extract(epoch FROM max(query_start)) * 1000000)::bigint, 0)
         FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()
           AND (query IN ('BEGIN', 'ROLLBACK') OR query LIKE 'SELECT pg_try_advisory_xact_lock%')",
    )
    .await
}

/// The other comparison may find that orders are gone, or may have looked at them before.
#[tokio::test]
async fn a_vanished_group_is_an_alarm_while_another_comparison_goes_on() {
    let app = TestApp::start().await;
    app.create_flash(10).await;
    let (another, mut worker) = worker_with_its_group(&app).await;
    let compares = app.holding("SELECT pg_advisory_xact_lock(x'00636f6d70617265'::bigint)").await;
    let gone: i64 = app.redis(&["XGROUP", "DESTROY", &app.log(lane()), "order-writers"]).await;
    assert_eq!(gone, 1);
    let lines = Lines::heard();
    worker.ensure_group().bounded().await.expect("Redis answers");
    // It waits a minute for its turn, and asks again and again. Each answer has less time than that.
    let mut newest = 0;
    let is_given_up = async {
        while data_lost(&another) < 1.0 {
            // The first of two may have been under way while time passed.
            for _ in 0..2 {
                eventually("the turn is asked for, or given up", async || {
                    let before = std::mem::replace(&mut newest, asked_for_turn(&app).await);
                    before < newest || data_lost(&another) >= 1.0
                })
                .await;
            }
            later(limits::TURN_SILENCE_MAX / 2).await;
        }
    };
    bounded("the turn is given up", is_given_up).await;
    idle(&another).await;
    assert_eq!((data_lost(&another), lines.count("a comparison goes on")), (1.0, 1));
    compares.rollback().await.expect("Postgres answers");
}

#[tokio::test]
async fn a_group_that_vanishes_while_its_lane_comes_to_rest_fails_the_next_turn() {
    let app = TestApp::start().await;
    worker_with(&app, |_| {}).await;
    // The state of the log is asked for by HMGET and others.
    let proxy = proxy_before(&app, "HMGET").await;
    let behind = app.another_instance_behind(&proxy).await;
    let mut worker = worker_of(behind, (&app.config).into());
    worker.ensure_group().bounded().await.expect("Redis answers");
    later(limits::LANE_LINGER).await;
    proxy.hold();
    let mut due = due_in(HOUR, HOUR);
    let vanishes = async {
        eventually("the lane comes to rest", async || proxy.held() > 0).await;
        let gone: i64 = app.redis(&["XGROUP", "DESTROY", &app.log(lane()), "order-writers"]).await;
        assert_eq!(gone, 1);
        proxy.release();
    };
    let turn_ends = async { tokio::join!(worker.turn(&mut due), vanishes).0 };
    bounded("the end of the turn", turn_ends).await.expect("it has read before");
    assert!(worker.turn(&mut due).bounded().await.is_err());
}
