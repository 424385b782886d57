//! Entries of other workers: taken over once these stand still, counted, and told; and lost ones put aside.

use std::time::Duration;

use flash_sale::worker::{LaneWorker, WorkerSettings};
use private_servers::testing::RedisServer;

use super::{HOUR, app_on, claims, consumers, reader, worker_of, worker_with};
use crate::support::lines::{Lines, number};
use crate::support::{
    Bounded, TestApp, bounded, calls, command_calls, eventually, lane, later, proxy_before, user,
    write_all,
};
use crate::tables::sqlstates::CLASSES;

const TOOK_OVER: &str = "took over entries that another worker had left";

async fn recovered(worker: &mut LaneWorker) -> usize {
    worker.recover_pass().bounded().await.expect("both stores answer")
}

fn taken_over(app: &TestApp) -> f64 {
    number(&app.app, "flash_sale_entries_taken_over_total")
}

fn data_lost(app: &TestApp) -> f64 {
    number(&app.app, "flash_sale_redis_data_lost_total")
}

#[tokio::test]
async fn entries_that_are_taken_over_are_counted_but_not_own_ones_that_have_grown_old() {
    let server = RedisServer::start(&[]);
    let app = app_on(&server).await;
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |with| with.take_over_idle = Duration::ZERO).await;
    assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").positions, 0);
    let lines = Lines::heard();
    assert_eq!((recovered(&mut worker).await, taken_over(&app)), (0, 0.0));
    assert_eq!(lines.count(TOOK_OVER), 0, "nothing was taken over");

    let dead = reader(&app);
    for (users, taken, counted) in [(1..=1, 1, 1.0), (2..=4, 3, 4.0)] {
        claims(&app, coupon, users).await;
        assert_eq!(dead.read_new(10).await.expect("Redis answers").len(), taken);
        assert_eq!((recovered(&mut worker).await, taken_over(&app)), (taken, counted));
        assert_eq!(write_all(&mut worker).await.inserted, taken);
    }
    assert_eq!(lines.count(TOOK_OVER), 2);

    // An own entry, which waits for its buyer's lock.
    let key = app.keys().order_lock(lane(), user(5));
    let held = app.app.locks.try_acquire_batch(vec![key]).await.expect("Redis answers");
    claims(&app, coupon, 5..=5).await;
    assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").contended, 1);
    assert_eq!((recovered(&mut worker).await, taken_over(&app)), (1, 4.0));
    let _: () = app.redis(&["CONFIG", "RESETSTAT"]).await;
    assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").inserted, 0);
    assert_eq!(
        command_calls(&app, "xreadgroup").await,
        1,
        "what the worker knows isn't read again"
    );
    // One of another worker beside it.
    claims(&app, coupon, 6..=6).await;
    assert_eq!(dead.read_new(10).await.expect("Redis answers").len(), 1);
    assert_eq!((recovered(&mut worker).await, taken_over(&app)), (2, 5.0));
    assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").inserted, 1);
    held.release().await;
    later(Duration::from_secs(1)).await;
    assert_eq!(write_all(&mut worker).await.inserted, 1);
}

#[tokio::test]
async fn recover_pass_counts_entries_of_idle_workers_and_has_them_written() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |with| with.take_over_idle = Duration::ZERO).await;
    assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").positions, 0);
    claims(&app, coupon, 1..=2).await;
    assert_eq!(reader(&app).read_new(10).await.expect("Redis answers").len(), 2);
    assert_eq!((recovered(&mut worker).await, taken_over(&app)), (2, 2.0));
    assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").inserted, 2);
}

/// Redis's idle times stay short here, as after its clock has been set back.
#[tokio::test]
async fn a_worker_that_stands_still_by_our_clock_loses_its_entries() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |with| with.take_over_idle = HOUR).await;
    let dead = reader(&app);
    claims(&app, coupon, 1..=2).await;
    assert_eq!(dead.read_new(1).await.expect("Redis answers").len(), 1);
    assert_eq!(recovered(&mut worker).await, 0, "it is seen for the first time");
    later(HOUR / 2).await;
    assert_eq!(recovered(&mut worker).await, 0);
    // It moves: it holds another entry.
    assert_eq!(dead.read_new(1).await.expect("Redis answers").len(), 1);
    later(HOUR * 2 / 3).await;
    assert_eq!(recovered(&mut worker).await, 0);
    later(HOUR * 2 / 3).await;
    assert_eq!(recovered(&mut worker).await, 0, "it has stood still for less than an hour");
    later(HOUR / 2).await;
    assert_eq!(recovered(&mut worker).await, 2);
    assert_eq!(recovered(&mut worker).await, 0, "they are ours now");
    assert_eq!(write_all(&mut worker).await.inserted, 2);
}

/// The worker holds the same entries for as long as its buyer's lock is held elsewhere.
#[tokio::test]
async fn a_worker_that_waits_for_a_lock_keeps_its_entries() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    let mut waiting = worker_with(&app, |with| with.take_over_idle = HOUR).await;
    let mut other = worker_with(&app, |with| with.take_over_idle = HOUR).await;
    let key = app.keys().order_lock(lane(), user(1));
    let held = app.app.locks.try_acquire_batch(vec![key]).await.expect("Redis answers");
    claims(&app, coupon, 1..=1).await;
    assert_eq!(waiting.write_pass().bounded().await.expect("both stores answer").contended, 1);
    for _ in 0..3 {
        assert_eq!((recovered(&mut waiting).await, recovered(&mut other).await), (0, 0));
        later(HOUR * 2 / 3).await;
    }
    assert_eq!(recovered(&mut other).await, 0, "it has moved within the hour");
    later(HOUR * 2 / 3).await;
    assert_eq!(recovered(&mut other).await, 1, "it stands still");
    held.release().await;
    assert_eq!(write_all(&mut other).await.inserted, 1);
}

#[tokio::test]
async fn lost_entries_are_counted_at_once_and_put_aside_once_postgres_takes_them() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |with| with.take_over_idle = Duration::ZERO).await;
    let dead = reader(&app);
    claims(&app, coupon, 1..=4).await;
    let held = dead.read_new(10).await.expect("Redis answers");
    for entry in [&held[0], &held[2]] {
        let _: i64 = app.redis(&["XDEL", &app.log(lane()), &entry.id.to_string()]).await;
    }
    let letters = "SELECT count(*) FROM dead_letters WHERE reason = 'deleted_from_log'";
    let lines = Lines::heard();
    for state in CLASSES {
        app.refuse("INSERT", "dead_letters", "true", state).await;
        let failed = worker.recover_pass().bounded().await;
        assert!(failed.is_err(), "{state}: no letter can be written");
        assert_eq!((data_lost(&app), app.number(letters).await), (2.0, 0), "{state}");
        app.accept("dead_letters").await;
    }
    recovered(&mut worker).await;
    assert_eq!((data_lost(&app), app.number(letters).await), (2.0, 2));
    assert_eq!(number(&app.app, "flash_sale_dead_letters_total"), 2.0);
    assert_eq!(lines.count("ALARM: an entry was deleted from the order log"), 2);
    assert_eq!(recovered(&mut worker).await, 2, "they are handed to their holder again");
    assert_eq!(number(&app.app, "flash_sale_dead_letters_total"), 2.0, "each once");
    assert_eq!(write_all(&mut worker).await.inserted, 2);
}

/// Such an entry was there when entries were taken over by their age.
#[tokio::test]
async fn entries_that_are_lost_while_their_worker_stands_still_are_put_aside() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    worker_with(&app, |_| {}).await;
    // The entries of others are asked for by XPENDING.
    let proxy = proxy_before(&app, "XPENDING").await;
    let behind = app.another_instance_behind(&proxy).await;
    let mut settings = WorkerSettings::from(&app.config);
    settings.take_over_idle = HOUR;
    let mut worker = worker_of(behind.clone(), settings);
    claims(&app, coupon, 1..=2).await;
    let held = reader(&app).read_new(10).await.expect("Redis answers");
    assert_eq!(recovered(&mut worker).await, 0);
    later(HOUR).await;
    proxy.hold();
    let is_lost = async {
        eventually("the others are looked at", async || proxy.held() > 0).await;
        let _: i64 = app.redis(&["XDEL", &app.log(lane()), &held[0].id.to_string()]).await;
        proxy.release();
    };
    let taken = async { tokio::join!(recovered(&mut worker), is_lost).0 };
    assert_eq!(bounded("the entries are taken over", taken).await, 1);
    assert_eq!(number(&behind, "flash_sale_redis_data_lost_total"), 1.0);
    let letters = "SELECT count(*) FROM dead_letters WHERE reason = 'deleted_from_log'";
    assert_eq!(app.number(letters).await, 1);
    assert_eq!(write_all(&mut worker).await.inserted, 1);
}

#[tokio::test]
async fn tidying_up_trims_what_is_written_and_tells_what_is_missing() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let mut worker = worker_with(&app, |_| {}).await;
    let length = async || app.redis::<u64>(&["XLEN", &app.log(lane())]).await;
    for _ in 0..250 {
        app.append(lane(), &["coupon", "1024", "user", "1", "order", "7"]).await;
    }
    let entries = worker.log().read_new(1_000).await.expect("Redis answers");
    worker.log().acknowledge(&crate::support::done(&entries)).await.expect("Redis answers");
    let lines = Lines::heard();
    let tidied_up = async |worker: &mut LaneWorker| {
        worker.tidy_up_pass().bounded().await.expect("Redis answers")
    };
    let trimmed = tidied_up(&mut worker).await;
    assert_eq!((trimmed, length().await), (200, 50), "whole nodes of a hundred entries");
    assert_eq!((tidied_up(&mut worker).await, data_lost(&app)), (0, 0.0));
    let of_lane = app.keys().lane(lane());
    for (promised, lost) in [("3", 3.0), ("-2", 3.0), ("1", 4.0)] {
        let _: i64 = app.redis(&["HINCRBY", &of_lane, "promised", promised]).await;
        assert_eq!((tidied_up(&mut worker).await, data_lost(&app)), (0, lost), "{promised}");
    }
    assert_eq!(lines.count("ALARM: no entry is left in the order log"), 2);
    assert_eq!(worker.log().id(), calls(lane()));
}

/// Its own pending entries may be among them, as far as it knows.
#[tokio::test]
async fn a_worker_that_has_not_read_yet_counts_no_entry_as_taken_over() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |with| with.take_over_idle = Duration::ZERO).await;
    claims(&app, coupon, 1..=1).await;
    assert_eq!(reader(&app).read_new(10).await.expect("Redis answers").len(), 1);
    assert_eq!((recovered(&mut worker).await, taken_over(&app)), (1, 0.0));
    assert_eq!(write_all(&mut worker).await.inserted, 1);
}

/// Redis names a lost entry only once, so no more are asked for before the last ones are put aside.
#[tokio::test]
async fn nothing_is_taken_over_while_lost_entries_can_not_be_put_aside() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |with| with.take_over_idle = Duration::ZERO).await;
    let dead = reader(&app);
    claims(&app, coupon, 1..=1).await;
    let held = dead.read_new(10).await.expect("Redis answers");
    let key = app.log(lane());
    let _: i64 = app.redis(&["XDEL", &key, &held[0].id.to_string()]).await;
    app.refuse("INSERT", "dead_letters", "true", "57014").await;
    assert!(worker.recover_pass().bounded().await.is_err());
    claims(&app, coupon, 2..=3).await;
    assert_eq!(dead.read_new(10).await.expect("Redis answers").len(), 2);
    let held_by_dead = async || {
        let command = ["XPENDING", &key, "order-writers", "-", "+", "9", dead.consumer()];
        app.redis::<Vec<redis::Value>>(&command).await.len()
    };
    assert!(worker.recover_pass().bounded().await.is_err());
    assert_eq!(held_by_dead().await, 2);
    app.accept("dead_letters").await;
    assert_eq!((recovered(&mut worker).await, held_by_dead().await), (2, 0));
    assert_eq!(write_all(&mut worker).await.inserted, 2);
}

#[tokio::test]
async fn tidying_up_removes_consumers_that_have_been_idle_for_an_hour() {
    let server = RedisServer::with_a_clock_to_set(&[]);
    let app = app_on(&server).await;
    let mut worker = worker_with(&app, |_| {}).await;
    for (hours, left) in [(0, 2), (1, 1)] {
        let command = ["XGROUP", "CREATECONSUMER", &app.log(lane()), "order-writers"];
        for name in ["dead", worker.log().consumer()] {
            let _: i64 = app.redis(&[&command[..], &[name]].concat()).await;
        }
        server.set_clock(hours * 3_600 + 60);
        worker.tidy_up_pass().bounded().await.expect("Redis answers");
        assert_eq!(consumers(&app).await, left, "after {hours} hours");
    }
}
