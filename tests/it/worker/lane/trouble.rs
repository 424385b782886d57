//! Turns that fail: what is said, how long the pauses are, and what a worker does anew afterwards.

use std::time::Duration;

use flash_sale::base::limits;
use flash_sale::worker::PassError;
use redis::ErrorKind;
use tokio::time::Instant;

use super::{HOUR, append, due_in, rows, worker_of, worker_with};
use crate::support::lines::Lines;
use crate::support::{Bounded, TestApp, bounded, lane, patience};

const FAILED: &str = "a pass over the order log failed; trying again";

#[tokio::test]
async fn pauses_double_with_each_failure_in_a_row_up_to_a_second() {
    let app = TestApp::start().await;
    let mut worker = worker_with(&app, |_| {}).await;
    let mut backoff = limits::BACKOFF_MIN;
    tokio::time::pause();
    for (failed, pause_ms) in
        [50, 100, 200, 400, 800, 1_000, 1_000, 0, 50, 100].map(|ms| (ms > 0, ms))
    {
        let turn = if failed { Err(PassError::PostgresAway) } else { Ok(()) };
        let began = Instant::now();
        worker.heal_if_failed(turn, &mut backoff).await;
        let took = began.elapsed().as_millis();
        // A timer may be a millisecond late.
        assert!((pause_ms..=pause_ms + 2).contains(&took), "{took} ms in place of {pause_ms}");
    }
    tokio::time::resume();
}

#[tokio::test]
async fn the_end_of_the_service_ends_a_pause() {
    let app = TestApp::start().await;
    let mut worker = worker_with(&app, |_| {}).await;
    let mut backoff = HOUR;
    let failed = worker.heal_if_failed(Err(PassError::PostgresAway), &mut backoff);
    let stops = async { assert!(app.app.shutdown.stop(patience()).await) };
    bounded("the pause ends", async { tokio::join!(failed, stops) }).await;
}

/// At most one line in a second, for all lanes of the process.
#[tokio::test]
async fn lasting_trouble_is_told_once_for_the_consumers_of_a_process() {
    let app = TestApp::start().await;
    let mut worker = worker_with(&app, |_| {}).await;
    let mut relief = worker.relief();
    let lines = Lines::heard();
    let began = Instant::now();
    for _ in 0..3 {
        worker.heal(PassError::PostgresAway).await;
        relief.heal(PassError::PostgresAway).await;
    }
    let told = lines.with(FAILED);
    assert!(told[0].contains("Postgres doesn't answer") && told[0].contains("lane=0"), "{told:?}");
    if began.elapsed() < limits::LOG_LINE_PAUSE {
        assert_eq!(told.len(), 1);
    }
    // A process of its own has a line of its own.
    worker_of(app.app.clone(), (&app.config).into()).heal(PassError::LocksLost).await;
    assert_eq!(lines.count("the buyers' locks were lost before the commit"), 1);
}

#[tokio::test]
async fn a_vanished_group_is_made_again_after_a_failure_that_tells_of_it() {
    let app = TestApp::start().await;
    let mut worker = worker_with(&app, |_| {}).await;
    let key = app.log(lane());
    let gone: i64 = app.redis(&["XGROUP", "DESTROY", &key, "order-writers"]).await;
    assert_eq!(gone, 1);
    let groups = async || app.redis::<Vec<redis::Value>>(&["XINFO", "GROUPS", &key]).await.len();
    let away = redis::RedisError::from((ErrorKind::Io, "Redis can't be reached"));
    let missing = worker.write_pass().bounded().await.expect_err("there is no group");
    for (error, expected) in
        [(PassError::Redis(away), 0), (PassError::PostgresAway, 0), (missing, 1)]
    {
        worker.heal(error).await;
        assert_eq!(groups().await, expected);
    }
}

#[tokio::test]
async fn a_writer_looks_at_the_group_again_after_a_failure() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |_| {}).await;
    append(&app, coupon, 1..=1).await;
    let key = app.log(lane());
    let gone: i64 = app.redis(&["XGROUP", "DESTROY", &key, "order-writers"]).await;
    assert_eq!(gone, 1);
    worker.heal(PassError::PostgresAway).await;
    let mut due = due_in(Duration::ZERO, HOUR);
    bounded("the turn", worker.turn(&mut due)).await.expect("the group is there again");
    assert_eq!(rows(&app).await, 1);
}

/// Redis may have delivered them in an answer that never arrived.
#[tokio::test]
async fn own_entries_are_read_again_after_a_failure_and_after_a_look_at_the_group() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |_| {}).await;
    assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").positions, 0);
    for user in 1..=4 {
        append(&app, coupon, user..=user).await;
        assert_eq!(worker.log().read_new(1).await.expect("Redis answers").len(), 1);
        assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").positions, 0);
        match user % 2 {
            0 => worker.heal(PassError::PostgresAway).await,
            _ => worker.ensure_group().bounded().await.expect("Redis answers"),
        }
        assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").inserted, 1);
    }
}

/// The pool of this instance is closed, so Postgres doesn't answer it.
#[tokio::test]
async fn postgres_is_taken_for_away_only_after_a_write_that_failed_and_until_it_answers() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    worker_with(&app, |_| {}).await;
    for fails_first in [false, true] {
        let another = app.another_instance().await;
        let mut worker = worker_of(another.clone(), (&app.config).into());
        if fails_first {
            append(&app, coupon, 1..=1).await;
            app.refuse("INSERT", "orders", "true", "57014").await;
            let failed = worker.write_pass().bounded().await;
            assert!(matches!(failed, Err(PassError::Postgres(_))), "{failed:?}");
            app.accept("orders").await;
            // Another worker has finished the entry.
            let mut other = worker_with(&app, |with| with.take_over_idle = Duration::ZERO).await;
            assert_eq!(other.recover_pass().bounded().await.expect("both stores answer"), 1);
            assert_eq!(other.write_pass().bounded().await.expect("both stores answer").inserted, 1);
            // In a new epoch a worker remembers no entry.
            app.execute("UPDATE lanes SET epoch = epoch + 1").await;
            another.lanes.read_now().await.expect("Postgres answers");
        }
        assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").positions, 0);
        another.stores.pool.close().await;
        // Nothing is to be written, so Postgres isn't asked.
        assert_eq!(worker.write_pass().bounded().await.expect("Redis answers").positions, 0);
    }
}
