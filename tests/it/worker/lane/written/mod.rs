//! Marks of a written batch: attempts, letters and lines of a sale that has too few units, times, and news for requests
//! that wait.

// The note of a batch in the trace of a claim.
mod noted;

use std::cell::Cell;
use std::pin::pin;
use std::sync::LazyLock;

use chrono::TimeDelta;
use flash_sale::base::clock::Clock;
use flash_sale::base::limits;
use flash_sale::sale::ids::{CouponId, OrderId};
use flash_sale::worker::LaneWorker;

use super::{append, worker_of, worker_with};
use crate::support::lines::{Lines, number};
use crate::support::played::{Play, Played, Still, hash, soon};
use crate::support::process::pending;
use crate::support::{Bounded, TestApp, bounded, eventually, lane, now, patience, shared, user};

/// The script that releases the locks of a batch.
static UNLOCK: LazyLock<String> = LazyLock::new(|| {
    hash(include_str!("../../../../../crates/redisson-locks/lua/reentrant/unlock_batch.lua"))
});

/// Rows and dead letters of one pass.
async fn written(worker: &mut LaneWorker) -> (usize, usize) {
    let report = worker.write_pass().bounded().await.expect("both stores answer");
    (report.inserted, report.dead_letters)
}

#[tokio::test]
async fn a_sale_that_had_too_few_units_is_written_by_itself_until_it_has_enough() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let [scarce, other] = [app.create_flash(2).await, app.create_flash(100).await];
    let mut worker = worker_with(&app, |_| {}).await;
    app.count_statements("INSERT", "orders").await;
    let lines = Lines::heard();
    let told = || lines.count("the order log has more claims of a sale than it has units");
    append(&app, scarce, 1..=5).await;
    assert_eq!(written(&mut worker).await, (2, 3));
    assert_eq!((app.statements().await, told()), (2, 1), "all of them, and then those that fit");
    let statements = "SELECT count(DISTINCT xmin::text) FROM dead_letters";
    assert_eq!(app.number(statements).await, 1);
    // Without a unit, no insert is tried. The others are written as before.
    append(&app, scarce, 6..=8).await;
    append(&app, other, 21..=22).await;
    assert_eq!(written(&mut worker).await, (2, 3));
    assert_eq!((app.statements().await, told()), (1, 2));
    app.execute(&format!("UPDATE flash_sales SET total = 100 WHERE coupon_id = {scarce}")).await;
    append(&app, scarce, 11..=12).await;
    append(&app, other, 23..=24).await;
    assert_eq!(written(&mut worker).await, (4, 0));
    assert_eq!((app.statements().await, told()), (2, 2), "still by itself");
    append(&app, scarce, 13..=14).await;
    append(&app, other, 25..=26).await;
    assert_eq!(written(&mut worker).await, (4, 0));
    assert_eq!((app.statements().await, told()), (1, 2), "together");
}

#[tokio::test]
async fn a_part_that_overflows_stays_by_itself_when_its_claims_are_written_one_by_one() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let [scarce, other] = [app.create_flash(2).await, app.create_flash(100).await];
    let mut worker = worker_with(&app, |_| {}).await;
    append(&app, scarce, 1..=3).await;
    assert_eq!(written(&mut worker).await, (2, 1));
    app.execute(&format!("UPDATE flash_sales SET total = 100 WHERE coupon_id = {scarce}")).await;
    app.refuse("INSERT", "orders", "(NEW.user_id = 12)", "23514").await;
    append(&app, scarce, 11..=12).await;
    assert_eq!(written(&mut worker).await, (1, 1));
    app.accept("orders").await;
    app.count_statements("INSERT", "orders").await;
    append(&app, scarce, 13..=13).await;
    append(&app, other, 23..=23).await;
    assert_eq!((written(&mut worker).await, app.statements().await), ((2, 0), 2));
}

#[tokio::test]
async fn a_conflict_is_written_as_a_letter_and_told_apart_from_a_surplus() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(2).await;
    let mut worker = worker_with(&app, |_| {}).await;
    let lines = Lines::heard();
    let told = || {
        [
            "claims in the order log contradict orders that are there",
            "the order log has more claims of a sale than it has units",
            "the order log has claims of archived sales",
        ]
        .map(|words| lines.count(words))
    };
    append(&app, coupon, 1..=1).await;
    assert_eq!((written(&mut worker).await, told()), ((1, 0), [0, 0, 0]));
    // A second order of a buyer.
    app.append(lane(), &["coupon", &coupon.to_string(), "user", "1", "order", "77"]).await;
    assert_eq!((written(&mut worker).await, told()), ((0, 1), [1, 0, 0]));
    append(&app, coupon, 2..=3).await;
    assert_eq!((written(&mut worker).await, told()), ((1, 1), [1, 1, 0]));
}

#[tokio::test]
async fn a_thousand_letters_are_written_and_told_at_a_time() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let mut worker = worker_with(&app, |_| {}).await;
    let lines = Lines::heard();
    let (mut letters, mut parts) = (0, 0);
    for (junk, more) in
        [(limits::DEAD_LETTERS_AT_A_TIME, 1), (limits::DEAD_LETTERS_AT_A_TIME + 1, 2)]
    {
        let script =
            "for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'junk', i) end return 1";
        let count = junk.to_string();
        let _: i64 = app.redis(&["EVAL", script, "1", &app.log(lane()), &count]).await;
        assert_eq!(written(&mut worker).await, (0, junk));
        (letters, parts) = (letters + junk, parts + more);
        assert_eq!(lines.count("claims in the order log can't become orders"), parts);
    }
    let found = "SELECT count(*) FROM dead_letters WHERE reason = 'undecodable'";
    assert_eq!(usize::try_from(app.number(found).await), Ok(letters));
}

#[tokio::test]
async fn claims_of_an_archived_sale_behind_the_mark_are_told_as_letters() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(100).await;
    let mut worker = worker_with(&app, |_| {}).await;
    append(&app, coupon, 30..=30).await;
    app.execute(&format!(
        "UPDATE coupons SET state = 'ended', ended_at = now() WHERE id = {coupon};
         UPDATE flash_sales SET archived_at = now() WHERE coupon_id = {coupon};
         UPDATE settings SET orders_moved_to = 20"
    ))
    .await;
    let lines = Lines::heard();
    let told = || lines.with("the order log has claims of archived sales");
    for (users, expected, count) in [(30..=30, (1, 0), 0), (1..=1, (0, 1), 1), (2..=4, (0, 3), 2)] {
        if *users.start() != 30 {
            append(&app, coupon, users).await;
        }
        assert_eq!((written(&mut worker).await, told().len()), (expected, count));
    }
    assert!(told()[1].contains("claims=3"), "{:?}", told());
    assert_eq!(number(&app.app, "flash_sale_dead_letters_total"), 4.0);
}

/// The time is that of the entry, up to the row, by the clock of the worker.
#[tokio::test]
async fn each_row_of_a_batch_is_timed_from_its_own_claim() {
    let at = now();
    let app = TestApp::on(shared(), &[], Clock::manual(at)).await;
    app.expect_disagreements();
    let coupon = app.create_flash(100).await.to_string();
    let mut worker = worker_with(&app, |_| {}).await;
    for (number, seconds) in [("1", 100), ("2", 100), ("3", 7), ("4", 0)] {
        let ms = (at - TimeDelta::seconds(seconds)).timestamp_millis();
        let entry = ["coupon", &coupon, "user", number, "order", number];
        app.append_as(lane(), &format!("{ms}-{number}"), &entry).await;
    }
    assert_eq!(written(&mut worker).await, (4, 0));
    assert_eq!(number(&app.app, "flash_sale_claim_to_row_seconds_count"), 4.0);
    let sum = number(&app.app, "flash_sale_claim_to_row_seconds_sum");
    assert!((sum - 207.0).abs() < 0.01, "{sum}");
    let tally = &app.app.metrics.tally;
    let counts: Vec<u64> = tally.to_rows.counts().into_values().collect();
    assert_eq!((tally.rows.get(), counts), (4, vec![1, 1, 2]));
}

/// By itself a request looks for its order only when time has passed, and the clock stands still.
#[tokio::test]
async fn a_request_that_waits_is_told_of_its_row_at_once() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |_| {}).await;
    append(&app, CouponId::compose(999, 1), 7..=7).await;
    let order = OrderId::new(7).expect("a positive number");
    let is_told = Cell::new(false);
    let clock = Still::begin();
    let waits = async {
        let told = app.app.order_waiters.wait(user(7), order, patience()).await;
        is_told.set(true);
        told
    };
    let writes = async {
        soon("the request waits", || app.app.order_waiters.count() == 1).await;
        assert_eq!(written(&mut worker).await, (0, 1));
        clock.settle().await;
        let looks = number(&app.app, "flash_sale_order_looks_total");
        assert!(looks < 1.0, "a batch without rows is no reason to look");
        append(&app, coupon, 7..=7).await;
        assert_eq!(written(&mut worker).await, (1, 0));
        soon("the request is told", || is_told.get()).await;
    };
    let (told, ()) = bounded("the row", async { tokio::join!(waits, writes) }).await;
    assert!(told.is_some_and(|told| told.order_id == order));
}

/// The next batch of the same buyers finds no lock of this one.
#[tokio::test]
async fn the_guard_of_a_batch_releases_its_locks_before_a_write_ends() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    worker_with(&app, |_| {}).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    let played = Played::before(app.redis_url(), |command| match command {
        [_, hash, ..] if *hash == *UNLOCK => Play::Later,
        _ => Play::Real,
    })
    .await;
    let other = played.process(&app).await;
    let mut worker = worker_of(other.clone(), (&app.config).into());
    worker.ensure_group().bounded().await.expect("Redis answers");
    let mut pass = pin!(worker.write_pass());
    let is_held_up = async {
        eventually("the locks are released", async || played.asked().len() == 1).await;
        eventually("the entry is acknowledged", async || pending(&app).await == 0).await;
        // Time for the worker to hear of that.
        app.some_replies().await;
    };
    tokio::select! {
        ended = &mut pass => panic!("the locks are not released yet: {ended:?}"),
        () = is_held_up => {}
    }
    played.answer(":1\r\n");
    let report = bounded("the end of the pass", pass).await.expect("both stores answer");
    assert_eq!((report.inserted, played.asked().len()), (1, 1));
    // The answer was made up.
    let _: i64 = app.redis(&["DEL", &app.keys().order_lock(lane(), user(1))]).await;
}
