//! Batches of a worker: their size after failures, what is counted of them, and what is told.

use std::time::{Duration, Instant};

use flash_sale::base::limits;
use flash_sale::sale::ids::CouponId;
use flash_sale::worker::LaneWorker;
use flash_sale::worker::write::WriteReport;

use super::{append, claims, reader, worker_with};
use crate::support::lines::{Lines, number};
use crate::support::{Bounded, TestApp, lane, later, tries, user, write_all};

async fn written(worker: &mut LaneWorker) -> WriteReport {
    worker.write_pass().bounded().await.expect("both stores answer")
}

#[tokio::test]
async fn a_batch_is_halved_by_each_failure_of_postgres_and_doubled_by_each_success() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(100).await;
    let mut worker = worker_with(&app, |with| with.batch_orders_max = 8).await;
    append(&app, coupon, 1..=40).await;
    for (failures, sizes) in [(0, &[8, 8][..]), (1, &[4, 8]), (5, &[1, 2, 4])] {
        app.refuse("INSERT", "orders", "true", "57014").await;
        for _ in 0..failures {
            let failed = worker.write_pass().bounded().await;
            assert!(failed.is_err(), "{failed:?}");
        }
        app.accept("orders").await;
        for size in sizes {
            let report = written(&mut worker).await;
            assert_eq!((report.positions, report.inserted), (*size, *size), "{failures} failures");
        }
    }
    assert_eq!(written(&mut worker).await.inserted, 5, "the rest");
}

#[tokio::test]
async fn what_became_of_positions_is_counted() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(5).await;
    let mut worker = worker_with(&app, |_| {}).await;
    let metrics = || {
        ["orders_written", "orders_repeated", "dead_letters", "lock_contended"]
            .map(|name| number(&app.app, &format!("flash_sale_{name}_total")))
    };
    append(&app, coupon, 1..=3).await;
    written(&mut worker).await;
    assert_eq!(metrics(), [3.0, 0.0, 0.0, 0.0]);
    append(&app, coupon, 2..=3).await;
    app.append(lane(), &["junk", "junk"]).await;
    let key = app.keys().order_lock(lane(), user(4));
    let held = app.app.locks.try_acquire_batch(vec![key]).await.expect("Redis answers");
    append(&app, coupon, 4..=4).await;
    let report = written(&mut worker).await;
    let expected =
        WriteReport { positions: 4, inserted: 0, repeated: 2, dead_letters: 1, contended: 1 };
    assert_eq!((report, metrics()), (expected, [3.0, 2.0, 1.0, 1.0]));
    held.release().await;
    later(limits::CONTENTION_PAUSE).await;
    assert_eq!(written(&mut worker).await.inserted, 1);
    // A second order of a buyer; then one more than there are units.
    let id = coupon.to_string();
    app.append(lane(), &["coupon", &id, "user", "1", "order", "77"]).await;
    let report = write_all(&mut worker).await;
    assert_eq!((report.inserted, report.dead_letters), (0, 1));
    append(&app, coupon, 5..=6).await;
    let report = write_all(&mut worker).await;
    assert_eq!((report.inserted, report.dead_letters), (1, 1));
    assert_eq!(metrics(), [5.0, 2.0, 3.0, 1.0]);
}

/// A lock that was just held is still held: its claim isn't tried before a pause, and other entries are.
#[tokio::test]
async fn a_contended_claim_is_tried_again_after_a_pause() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1_000).await;
    let mut worker = worker_with(&app, |_| {}).await;
    for n in tries() {
        let key = app.keys().order_lock(lane(), user(n));
        let held = app.app.locks.try_acquire_batch(vec![key]).await.expect("Redis answers");
        claims(&app, coupon, n..=n).await;
        let began = Instant::now();
        let first = written(&mut worker).await;
        assert_eq!((first.positions, first.contended), (1, 1));
        let at_once = written(&mut worker).await.positions;
        // On a machine this slow the pause is over.
        let is_early = began.elapsed() < limits::CONTENTION_PAUSE;
        later(limits::CONTENTION_PAUSE).await;
        assert_eq!(written(&mut worker).await.contended, 1, "the lock is still held");
        held.release().await;
        later(limits::CONTENTION_PAUSE).await;
        assert_eq!(written(&mut worker).await.inserted, 1);
        if is_early {
            assert_eq!(at_once, 0);
            break;
        }
    }
}

/// The time from a claim to its row is recorded by the worker that has written it, and by no other.
#[tokio::test]
async fn rows_are_timed_by_the_worker_that_made_them() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(100).await;
    let mut worker = worker_with(&app, |_| {}).await;
    let timed = || number(&app.app, "flash_sale_claim_to_row_seconds_count");
    append(&app, coupon, 1..=3).await;
    assert_eq!((written(&mut worker).await.inserted, timed()), (3, 3.0));
    append(&app, coupon, 1..=3).await;
    assert_eq!((written(&mut worker).await.repeated, timed()), (3, 3.0), "repeats");
    append(&app, coupon, 3..=4).await;
    assert_eq!((written(&mut worker).await.inserted, timed()), (1, 3.0), "a mixed batch");

    // Rows of a batch that failed may be the worker's own: the commit may not have been heard.
    append(&app, coupon, 5..=7).await;
    app.refuse("INSERT", "orders", "true", "57014").await;
    assert!(worker.write_pass().bounded().await.is_err());
    app.accept("orders").await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
             SELECT n, {coupon}, 'flash', n, now() FROM generate_series(5, 6) AS n;
         UPDATE flash_sales SET sold = sold + 2"
    ))
    .await;
    let report = write_all(&mut worker).await;
    assert_eq!((report.inserted, report.repeated, timed()), (1, 2, 6.0));
    // Once the log has been empty, nothing is left of that.
    append(&app, coupon, 5..=6).await;
    assert_eq!((write_all(&mut worker).await.repeated, timed()), (2, 6.0));
}

#[tokio::test]
async fn a_lost_entry_among_the_own_ones_is_a_loss_and_one_that_can_not_be_read_is_none() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |_| {}).await;
    append(&app, coupon, 1..=2).await;
    app.append(lane(), &["junk", "junk"]).await;
    let held = worker.log().read_new(10).await.expect("Redis answers");
    let _: i64 = app.redis(&["XDEL", &app.log(lane()), &held[0].id.to_string()]).await;
    let lines = Lines::heard();
    let report = write_all(&mut worker).await;
    assert_eq!((report.inserted, report.dead_letters), (1, 2));
    assert_eq!(number(&app.app, "flash_sale_redis_data_lost_total"), 1.0);
    assert_eq!(lines.count("claims in the order log can't become orders"), 1, "one line for both");
    let reasons = "SELECT count(DISTINCT reason) FROM dead_letters
                   WHERE reason IN ('deleted_from_log', 'undecodable')";
    assert_eq!(app.number(reasons).await, 2);
}

/// Entries that were read in one epoch may be others in the next one.
#[tokio::test]
async fn entries_are_read_again_in_a_new_epoch() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |_| {}).await;
    append(&app, coupon, 1..=1).await;
    let id = reader(&app).state().await.expect("Redis answers").last.to_string();
    app.refuse("INSERT", "orders", "true", "57014").await;
    assert!(worker.write_pass().bounded().await.is_err());
    app.accept("orders").await;
    // In place of the entry, another life of Redis has one of another buyer under its id.
    let key = app.log(lane());
    let _: i64 = app.redis(&["DEL", &key]).await;
    let id_of_coupon = coupon.to_string();
    let _: String =
        app.redis(&["XADD", &key, &id, "coupon", &id_of_coupon, "user", "2", "order", "2"]).await;
    worker.log().begin_anew().await.expect("Redis answers");
    app.execute("UPDATE lanes SET epoch = epoch + 1").await;
    app.app.lanes.read_now().await.expect("Postgres answers");
    let of_lane = app.keys().lane(lane());
    let _: i64 = app.redis(&["HINCRBY", &of_lane, "epoch", "1"]).await;
    assert_eq!(write_all(&mut worker).await.inserted, 1);
    assert_eq!(app.number("SELECT user_id FROM orders").await, 2);
}

/// Time for which a worker doesn't read while Postgres is away: its entries grow old, and another one takes them over.
#[tokio::test]
async fn nothing_is_read_while_postgres_is_away() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    claims(&app, coupon, 1..=2).await;
    let another = app.another_instance().await;
    let mut worker = super::worker_of(another.clone(), (&app.config).into());
    worker.ensure_group().bounded().await.expect("Redis answers");
    another.stores.pool.close().await;
    let failed = worker.write_pass().bounded().await;
    assert!(matches!(failed, Err(flash_sale::worker::PassError::Postgres(_))), "{failed:?}");
    claims(&app, coupon, 3..=3).await;
    for _ in 0..2 {
        let failed = worker.write_pass().bounded().await;
        assert!(matches!(failed, Err(flash_sale::worker::PassError::PostgresAway)), "{failed:?}");
        let failed = worker.recover_pass().bounded().await;
        assert!(matches!(failed, Err(flash_sale::worker::PassError::PostgresAway)), "{failed:?}");
    }
    assert_eq!(crate::support::process::pending(&app).await, 2, "the third entry is unread");
    let mut next = worker_with(&app, |with| with.take_over_idle = Duration::ZERO).await;
    assert_eq!(next.recover_pass().bounded().await.expect("both stores answer"), 2);
    assert_eq!(write_all(&mut next).await.inserted, 3);
}

#[tokio::test]
async fn an_entry_that_is_read_again_is_told_once() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let mut worker = worker_with(&app, |_| {}).await;
    app.append(lane(), &["junk", "junk"]).await;
    let lines = Lines::heard();
    for (dead_letters, repeated) in [(1, 0), (0, 1)] {
        let report = write_all(&mut worker).await;
        assert_eq!((report.dead_letters, report.repeated), (dead_letters, repeated));
        assert_eq!(lines.count("claims in the order log can't become orders"), 1);
        let key = app.log(lane());
        let _: String = app.redis(&["XGROUP", "SETID", &key, "order-writers", "0"]).await;
    }
}

#[tokio::test]
async fn claims_on_an_unknown_coupon_are_put_aside_together_and_a_refused_one_alone() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(100).await;
    let mut worker = worker_with(&app, |_| {}).await;
    let lines = Lines::heard();
    append(&app, CouponId::compose(999, 1), 1..=5).await;
    append(&app, coupon, 11..=13).await;
    let report = written(&mut worker).await;
    assert_eq!((report.positions, report.inserted, report.dead_letters), (8, 3, 5));
    assert_eq!(lines.count("claims in the order log can't become orders"), 1);
    app.refuse("INSERT", "orders", "(NEW.user_id = 22)", "23514").await;
    append(&app, coupon, 21..=25).await;
    let report = written(&mut worker).await;
    assert_eq!((report.positions, report.inserted, report.dead_letters), (5, 4, 1));
    assert_eq!(lines.count("claims in the order log can't become orders"), 2);
    let users = "SELECT string_agg(user_id::text, ' ' ORDER BY user_id) FROM dead_letters";
    let users: String =
        sqlx::query_scalar(users).fetch_one(&app.app.stores.pool).await.expect("Postgres answers");
    assert_eq!(users, "1 2 3 4 5 22");
}
