//! Reliefs: other consumers of a process, which write while its writer can't keep up.

use std::time::Duration;

use flash_sale::base::limits;
use flash_sale::worker::{self, LaneWorker, WorkerSettings};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{HOUR, append, consumers, due_in, rows, worker_of, worker_with};
use crate::support::lines::{Lines, number};
use crate::support::played::{Still, soon};
use crate::support::{Bounded, TestApp, bounded, eventually, lane, patience, tries, user};

async fn turn(worker: &mut LaneWorker) {
    let mut due = due_in(HOUR, HOUR);
    bounded("the end of the turn", worker.turn(&mut due)).await.expect("both stores answer");
}

async fn relief_turn(relief: &mut LaneWorker) {
    bounded("the end of the turn", relief.relief_turn()).await.expect("both stores answer");
}

#[tokio::test]
async fn a_relief_waits_until_a_batch_is_full_and_writes_the_next_one() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |with| with.batch_orders_max = 3).await;
    let mut relief = worker.relief();
    append(&app, coupon, 1..=2).await;
    let calls = async {
        turn(&mut worker).await;
        assert_eq!(
            (rows(&app).await, consumers(&app).await),
            (2, 1),
            "a batch of two calls no one"
        );
        append(&app, coupon, 3..=6).await;
        turn(&mut worker).await;
    };
    let relieved = async { tokio::join!(relief.relief_turn(), calls).0 };
    bounded("the relief is called", relieved).await.expect("both stores answer");
    assert_eq!((rows(&app).await, consumers(&app).await), (6, 2));
    assert_ne!(relief.log().consumer(), worker.log().consumer());
}

#[tokio::test]
async fn a_relief_tries_contended_claims_again_without_a_call() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let mut relief = worker_with(&app, |_| {}).await.relief();
    let key = app.keys().order_lock(lane(), user(1));
    let held = app.app.locks.try_acquire_batch(vec![key]).await.expect("Redis answers");
    append(&app, coupon, 1..=1).await;
    assert_eq!(relief.write_pass().bounded().await.expect("both stores answer").contended, 1);
    held.release().await;
    // One turn, which waits until the claim may be tried again.
    relief_turn(&mut relief).await;
    assert_eq!(rows(&app).await, 1);
}

/// The clock stands still, so that the pause does not end.
#[tokio::test]
async fn a_relief_that_waits_for_contended_claims_goes_on_at_a_call_and_ends_with_the_service() {
    for is_called in [true, false] {
        let app = TestApp::start().await;
        app.expect_disagreements();
        let coupon = app.create_flash(10).await;
        worker_with(&app, |_| {}).await;
        let another = app.another_instance().await;
        let settings = WorkerSettings { batch_orders_max: 1, ..WorkerSettings::from(&app.config) };
        let mut worker = worker_of(another.clone(), settings);
        let mut relief = worker.relief();
        let key = app.keys().order_lock(lane(), user(1));
        let _: i64 = app.redis(&["HSET", &key, "another", "1"]).await;
        let clock = Still::begin();
        append(&app, coupon, 1..=1).await;
        assert_eq!(relief.write_pass().bounded().await.expect("both stores answer").contended, 1);
        let mut tasks = JoinSet::new();
        let waits = tasks.spawn(async move { relief.relief_turn().await });
        clock.settle().await;
        assert!(!waits.is_finished());
        if is_called {
            append(&app, coupon, 2..=3).await;
            turn(&mut worker).await;
        } else {
            another.shutdown.stop_token().cancel();
        }
        soon("the turn ends", || waits.is_finished()).await;
        drop(clock);
        let ended = bounded("the turn", tasks.join_next()).await.expect("a task");
        ended.expect("no panic").expect("both stores answer");
        let written = app.numbers("SELECT user_id FROM orders ORDER BY 1").await;
        assert_eq!(written, if is_called { &[2, 3][..] } else { &[] });
        let _: i64 = app.redis(&["DEL", &key]).await;
    }
}

/// The pause is for a relief that has nothing else to do.
#[tokio::test]
async fn a_relief_with_other_claims_does_not_wait_for_contended_ones() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10_000).await;
    let mut relief = worker_with(&app, |with| with.batch_orders_max = 1).await.relief();
    let id = coupon.to_string();
    for n in tries() {
        let users = [3 * n, 3 * n + 1, 3 * n + 2];
        let key = app.keys().order_lock(lane(), user(users[0]));
        let held = app.app.locks.try_acquire_batch(vec![key]).await.expect("Redis answers");
        // One entry, which is more than a batch.
        let claims = users.map(|user| format!("{user} {user}")).join(" ");
        let entry = ["XADD", &app.log(lane()), "*", "coupon", &id, "first", "1", "claims", &claims];
        let _: String = app.redis(&entry).await;
        let began = Instant::now();
        let report = relief.write_pass().bounded().await.expect("both stores answer");
        assert_eq!((report.positions, report.contended), (1, 1));
        let before = rows(&app).await;
        relief_turn(&mut relief).await;
        let is_early = began.elapsed() < limits::CONTENTION_PAUSE;
        assert_eq!(rows(&app).await, before + 1, "one batch");
        held.release().await;
        // Two with a batch each, and one that its own call for the others may have woken up.
        for _ in 0..3 {
            relief_turn(&mut relief).await;
        }
        assert_eq!(rows(&app).await, before + 3);
        if is_early {
            break;
        }
    }
}

/// A relief that has forgotten its contended claims, as after a failure, reads them again at once.
#[tokio::test]
async fn a_relief_with_own_entries_to_read_does_not_wait() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10_000).await;
    let mut relief = worker_with(&app, |_| {}).await.relief();
    let of_lane = app.keys().lane(lane());
    let raise = async |by: &str| app.redis::<i64>(&["HINCRBY", &of_lane, "epoch", by]).await;
    for n in tries() {
        let (first, second) = (2 * n, 2 * n + 1);
        let key = app.keys().order_lock(lane(), user(first));
        let held = app.app.locks.try_acquire_batch(vec![key]).await.expect("Redis answers");
        append(&app, coupon, first..=first).await;
        let began = Instant::now();
        assert_eq!(relief.write_pass().bounded().await.expect("both stores answer").contended, 1);
        held.release().await;
        append(&app, coupon, second..=second).await;
        raise("1").await;
        assert!(
            relief.write_pass().bounded().await.is_err(),
            "the lane has another epoch in Redis"
        );
        raise("-1").await;
        let before = rows(&app).await;
        relief_turn(&mut relief).await;
        assert_eq!(rows(&app).await, before + 2);
        if began.elapsed() < limits::CONTENTION_PAUSE {
            break;
        }
    }
}

#[tokio::test]
async fn a_relief_that_waits_ends_with_the_service() {
    let app = TestApp::start().await;
    let mut relief = worker_with(&app, |_| {}).await.relief();
    let stops = async { assert!(app.app.shutdown.stop(patience()).await) };
    let relieved = async { tokio::join!(relief.relief_turn(), stops).0 };
    bounded("the relief ends", relieved).await.expect("no store is asked");
    assert_eq!(consumers(&app).await, 0, "it has read nothing");
}

#[tokio::test]
async fn a_relief_that_fails_says_so_pauses_and_goes_on() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let another = app.another_instance().await;
    worker_with(&app, |_| {}).await;
    append(&app, coupon, 1..=3).await;
    app.refuse("INSERT", "orders", "true", "57014").await;
    let lines = Lines::heard();
    let mut tasks = JoinSet::new();
    tasks.spawn(worker_of(another.clone(), (&app.config).into()).run_relief());
    let failures = || number(&another, "flash_sale_pass_failures_total{pass=\"write\"}");
    let began = Instant::now();
    eventually("the relief fails three times", async || failures() >= 3.0).await;
    // 50 ms after the first failure, 100 ms after the second one.
    assert!(began.elapsed() >= Duration::from_millis(150));
    assert!(lines.count("a pass over the order log failed; trying again") >= 1);
    app.accept("orders").await;
    eventually("the rows are written", async || rows(&app).await == 3).await;
    assert!(another.shutdown.stop(patience()).await);
    bounded("the relief ends", tasks.join_next()).await.expect("a task").expect("no panic");
    assert_eq!(consumers(&app).await, 0, "it has left the group");
}

/// A writer and two reliefs: each is a consumer once it has read.
#[tokio::test]
async fn three_consumers_of_a_process_share_a_backlog_and_leave_at_the_end() {
    let app = TestApp::configured(&["--batch-orders-max", "1"]).await;
    app.expect_disagreements();
    let coupon = app.create_flash(100).await;
    append(&app, coupon, 1..=60).await;
    let another = app.another_instance().await;
    worker::start(&another, &app.config);
    eventually("the rows are written", async || rows(&app).await == 60).await;
    assert_eq!(consumers(&app).await, 3);
    assert!(another.shutdown.stop(patience()).await);
    assert_eq!(consumers(&app).await, 0);
}
