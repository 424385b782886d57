//! Turns of a writer: the passes that run in one, the pauses, the rests, and what lets a lane get up.

use std::pin::pin;
use std::time::Duration;

use flash_sale::base::limits;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::keys::{LogId, LogLayout};
use flash_sale::worker::lane::Due;
use flash_sale::worker::{LaneWorker, WorkerSettings, consumer_name};
use private_servers::testing::RedisServer;
use tokio::time::Instant;

use super::{HOUR, app_on, append, due_in, reader, rows, worker_of, worker_with};
use crate::support::lines::number;
use crate::support::played::Played;
use crate::support::{
    Bounded, TestApp, bounded, command_calls, eventually, lane, later, patience, proxy_before,
    tries,
};

/// Less than the time in which Redis has to answer.
const SOON: Duration = Duration::from_secs(8);

/// Waits until resting lanes have looked at their logs so many times more.
async fn looks(app: &TestApp, count: i64) {
    let before = command_calls(app, "xread").await;
    let looked = async || command_calls(app, "xread").await >= before + count;
    eventually("the lane looks at its log", looked).await;
}

/// The turn comes to rest, and goes on resting when time passes.
async fn assert_rests(app: &TestApp, worker: &mut LaneWorker, due: &mut Due, time: Duration) {
    let time_passes = async {
        looks(app, 2).await;
        later(time).await;
        looks(app, 3).await;
    };
    tokio::select! {
        ended = worker.turn(due) => panic!("the turn ended: {ended:?}"),
        () = time_passes => {}
    }
}

/// The turn comes to rest, and ends once this time has passed.
async fn assert_gets_up(app: &TestApp, worker: &mut LaneWorker, due: &mut Due, time: Duration) {
    assert_gets_up_after(looks(app, 2), worker, due, time).await;
}

/// The same; the turn rests by then.
async fn assert_gets_up_after(
    rests: impl Future<Output = ()>,
    worker: &mut LaneWorker,
    due: &mut Due,
    time: Duration,
) {
    let time_passes = async {
        rests.await;
        later(time).await;
    };
    let mut turn = pin!(worker.turn(due));
    tokio::select! {
        biased;
        () = time_passes => {}
        ended = &mut turn => panic!("the turn ended: {ended:?}"),
    }
    bounded("the lane gets up", turn).await.expect("both stores answer");
}

async fn turn(worker: &mut LaneWorker, due: &mut Due) {
    bounded("the end of the turn", worker.turn(due)).await.expect("both stores answer");
}

/// A worker on a Redis of the test's own, a sale, and a lane that has been idle for a while.
async fn idle_lane(server: &RedisServer) -> (TestApp, CouponId, LaneWorker) {
    let app = app_on(server).await;
    app.expect_disagreements();
    let coupon = app.create_flash(100).await;
    let worker = worker_with(&app, |with| with.recover_period = Duration::from_secs(7)).await;
    later(limits::LANE_LINGER).await;
    (app, coupon, worker)
}

#[tokio::test]
async fn a_turn_runs_the_passes_that_are_due_and_the_one_that_fails_is_counted() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let mut worker = worker_with(&app, |_| {}).await;
    let mut without_group = worker_of(app.app.clone(), (&app.config).into());
    let key = app.log(lane());
    let _: i64 = app.redis(&["DEL", &key]).await;
    let _: String = app.redis(&["SET", &key, "no log"]).await;
    let failures = || {
        ["write", "recover", "tidy_up"].map(|pass| {
            number(&app.app, &format!("flash_sale_pass_failures_total{{pass=\"{pass}\"}}"))
        })
    };
    let now = Duration::ZERO;
    for (recover, tidy_up, counted) in [
        (HOUR, HOUR, [1.0, 0.0, 0.0]),
        (now, HOUR, [1.0, 1.0, 0.0]),
        (now, now, [1.0, 2.0, 0.0]),
        (HOUR, now, [1.0, 2.0, 1.0]),
        (HOUR, HOUR, [2.0, 2.0, 1.0]),
    ] {
        let mut due = due_in(recover, tidy_up);
        let before = due;
        assert!(worker.turn(&mut due).bounded().await.is_err());
        assert_eq!((failures(), due), (counted, before), "recover {recover:?}, tidy {tidy_up:?}");
    }
    // Without a group, a turn goes no further.
    assert!(without_group.turn(&mut due_in(now, now)).bounded().await.is_err());
    assert_eq!(failures(), [3.0, 2.0, 1.0]);
}

#[tokio::test]
async fn a_pass_that_has_run_is_due_again_after_its_period() {
    let period = Duration::from_secs(7);
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |with| with.recover_period = period).await;
    append(&app, coupon, 1..=1).await;
    let mut due = due_in(Duration::ZERO, Duration::ZERO);
    let before = Instant::now();
    turn(&mut worker, &mut due).await;
    let took = before.elapsed();
    let late = |at: Instant, period| (at - before).checked_sub(period).expect("a period at least");
    assert!(late(due.recover_at, period) <= took, "{due:?}");
    assert!(late(due.tidy_up_at, limits::TRIM_PERIOD) <= took, "{due:?}");
    let mut due = due_in(HOUR, HOUR);
    let before = due;
    append(&app, coupon, 2..=2).await;
    turn(&mut worker, &mut due).await;
    assert_eq!((due, rows(&app).await), (before, 2));
}

/// So that entries that arrive meanwhile are written together.
#[tokio::test]
async fn a_writer_pauses_after_each_batch_that_was_not_full() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |_| {}).await;
    for user in 1..=5 {
        append(&app, coupon, user..=user).await;
        let began = Instant::now();
        turn(&mut worker, &mut due_in(HOUR, HOUR)).await;
        assert!(began.elapsed() >= limits::WRITE_PAUSE, "a batch of one");
        let began = Instant::now();
        // On a machine this slow the lane rests until it has to tidy up.
        turn(&mut worker, &mut due_in(HOUR, 5 * limits::LANE_LINGER)).await;
        assert!(began.elapsed() >= limits::WRITE_PAUSE, "no entry");
    }
}

/// More of a burst may be on its way.
#[tokio::test]
async fn a_lane_rests_only_after_a_while_without_an_entry() {
    let server = RedisServer::start(&[]);
    let (app, coupon, mut worker) = idle_lane(&server).await;
    for user in tries() {
        append(&app, coupon, user..=user).await;
        let began = Instant::now();
        turn(&mut worker, &mut due_in(HOUR, HOUR)).await;
        // A lane asks for the state of its log before it rests.
        let before = command_calls(&app, "hmget").await;
        turn(&mut worker, &mut due_in(HOUR, 5 * limits::LANE_LINGER)).await;
        let is_early = began.elapsed() < limits::LANE_LINGER;
        if is_early {
            assert_eq!(command_calls(&app, "hmget").await, before);
            break;
        }
    }
    later(limits::LANE_LINGER).await;
    assert_rests(&app, &mut worker, &mut due_in(HOUR, HOUR), Duration::ZERO).await;
}

/// Another process may have left some.
#[tokio::test]
async fn a_lane_whose_worker_is_new_gets_up_to_tidy_up() {
    let app = TestApp::start().await;
    let played = Played::hearing(app.redis_url(), "XREAD").await;
    let mut worker = worker_of(played.process(&app).await, (&app.config).into());
    worker.ensure_group().bounded().await.expect("Redis answers");
    later(limits::LANE_LINGER).await;
    let rests = eventually("the lane looks at its log", async || !played.asked().is_empty());
    assert_gets_up_after(rests, &mut worker, &mut due_in(HOUR, SOON), SOON).await;
}

#[tokio::test]
async fn a_lane_gets_up_for_entries_of_others_and_to_tidy_up() {
    let server = RedisServer::start(&[]);
    let (app, coupon, mut worker) = idle_lane(&server).await;
    let now = Duration::ZERO;
    // This turn tidies up.
    assert_rests(&app, &mut worker, &mut due_in(now, now), SOON).await;
    assert_rests(&app, &mut worker, &mut due_in(SOON, SOON), SOON).await;
    append(&app, coupon, 1..=1).await;
    turn(&mut worker, &mut due_in(HOUR, HOUR)).await;
    later(limits::LANE_LINGER).await;
    for (recover, tidy_up, gets_up) in [(HOUR, SOON, true), (SOON, HOUR, false)] {
        let mut due = due_in(recover, tidy_up);
        let before = due;
        if gets_up {
            assert_gets_up(&app, &mut worker, &mut due, SOON).await;
            assert_eq!(due, before, "the pass is still due");
        } else {
            assert_rests(&app, &mut worker, &mut due, SOON).await;
        }
    }
    // Another consumer holds an entry.
    append(&app, coupon, 2..=2).await;
    assert_eq!(reader(&app).read_new(1).await.expect("Redis answers").len(), 1);
    for (recover, tidy_up) in [(HOUR, SOON), (SOON, HOUR)] {
        assert_gets_up(&app, &mut worker, &mut due_in(recover, tidy_up), SOON).await;
    }
    assert_rests(&app, &mut worker, &mut due_in(HOUR, now), SOON).await;
    assert_gets_up(&app, &mut worker, &mut due_in(SOON, HOUR), SOON).await;
    assert_rests(&app, &mut worker, &mut due_in(HOUR, SOON), SOON).await;
}

#[tokio::test]
async fn a_lane_gets_up_for_an_entry_and_no_pass_has_become_due_by_the_rest() {
    let server = RedisServer::start(&[]);
    let (app, coupon, mut worker) = idle_lane(&server).await;
    assert_rests(&app, &mut worker, &mut due_in(HOUR, Duration::ZERO), SOON).await;
    let mut due = due_in(HOUR, HOUR);
    let entry_comes = async {
        looks(&app, 2).await;
        let before = Instant::now();
        append(&app, coupon, 1..=1).await;
        before
    };
    let turn_ends = async { tokio::join!(worker.turn(&mut due), entry_comes) };
    let (ended, before) = bounded("the lane gets up", turn_ends).await;
    ended.expect("both stores answer");
    assert_eq!(rows(&app).await, 0, "the next turn writes it");
    let took = before.elapsed();
    let late = |at: Instant, period| (at - before).checked_sub(period).expect("a period at least");
    assert!(late(due.recover_at, Duration::from_secs(7)) <= took, "{due:?}");
    assert!(late(due.tidy_up_at, limits::TRIM_PERIOD) <= took, "{due:?}");
    turn(&mut worker, &mut due_in(HOUR, HOUR)).await;
    assert_eq!(rows(&app).await, 1);
}

/// A log of calls is read from the first turn on; one that only older versions write, from its first entry on.
#[tokio::test]
async fn a_lane_rests_beside_a_log_that_no_older_version_has_written() {
    let server = RedisServer::start(&[]);
    let app = app_on(&server).await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let log = LogId { lane: lane(), layout: LogLayout::Claims };
    let key = app.keys().log(log);
    let exists = async || app.redis::<bool>(&["EXISTS", &key]).await;
    let mut worker = LaneWorker::new(app.app.clone(), log, consumer_name(), (&app.config).into());
    let mut due = due_in(Duration::ZERO, Duration::ZERO);
    assert_rests(&app, &mut worker, &mut due, SOON).await;
    assert!(!exists().await);
    let coupon = coupon.to_string();
    let entry_comes = async {
        looks(&app, 2).await;
        let entry = ["XADD", &key, "*", "coupon", &coupon, "user", "7", "order", "7"];
        let _: String = app.redis(&entry).await;
    };
    let turn_ends = async { tokio::join!(worker.turn(&mut due), entry_comes).0 };
    bounded("the lane gets up", turn_ends).await.expect("Redis answers");
    let groups: Vec<redis::Value> = app.redis(&["XINFO", "GROUPS", &key]).await;
    assert_eq!((groups.len(), rows(&app).await), (0, 0), "the next turn reads it");
    turn(&mut worker, &mut due).await;
    assert_eq!(rows(&app).await, 1);

    let mut worker = worker_of(app.app.clone(), (&app.config).into());
    turn(&mut worker, &mut due_in(HOUR, 5 * limits::LANE_LINGER)).await;
    let groups: Vec<redis::Value> = app.redis(&["XINFO", "GROUPS", &app.log(lane())]).await;
    assert_eq!(groups.len(), 1);
}

#[tokio::test]
async fn a_lane_at_rest_gets_up_when_the_service_stops() {
    let server = RedisServer::start(&[]);
    let (app, ..) = idle_lane(&server).await;
    for layout in [LogLayout::Calls, LogLayout::Claims] {
        let another = app.another_instance().await;
        let log = LogId { lane: lane(), layout };
        let settings = (&app.config).into();
        let mut worker = LaneWorker::new(another.clone(), log, consumer_name(), settings);
        later(limits::LANE_LINGER).await;
        let stops = async {
            looks(&app, 2).await;
            assert!(another.shutdown.stop(patience()).await);
        };
        let mut due = due_in(HOUR, Duration::ZERO);
        let turn_ends = async { tokio::join!(worker.turn(&mut due), stops).0 };
        bounded("the lane gets up", turn_ends).await.expect("Redis answers");
    }
}

/// Such entries are behind no newer one, so nothing would wake up the lane.
#[tokio::test]
async fn entries_that_come_while_a_lane_comes_to_rest_are_read_before_it_does() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    worker_with(&app, |_| {}).await;
    // The state of the log is asked for by HMGET and others.
    let proxy = proxy_before(&app, "HMGET").await;
    let behind = app.another_instance_behind(&proxy).await;
    let mut settings = WorkerSettings::from(&app.config);
    settings.batch_orders_max = 1;
    let mut worker = worker_of(behind, settings);
    worker.ensure_group().bounded().await.expect("Redis answers");
    later(limits::LANE_LINGER).await;
    proxy.hold();
    let mut due = due_in(HOUR, HOUR);
    let entries_come = async {
        eventually("the lane comes to rest", async || proxy.held() > 0).await;
        append(&app, coupon, 1..=2).await;
        proxy.release();
    };
    let turn_ends = async { tokio::join!(worker.turn(&mut due), entries_come).0 };
    bounded("the end of the turn", turn_ends).await.expect("both stores answer");
    assert_eq!(rows(&app).await, 1);
    turn(&mut worker, &mut due).await;
    assert_eq!(rows(&app).await, 2);
}
