//! The worker: an entry is acknowledged only once it is written, is written once, and holds up no other entry when it
//! is bad.

use std::time::Duration;

use flash_sale::app::start_housekeeping;
use flash_sale::base::limits;
use flash_sale::log::{LoggedClaim, OrderLog};
use flash_sale::order::insert::NotWritten;
use flash_sale::order::write::Origin;
use flash_sale::store::ids::CouponId;
use flash_sale::worker;
use tokio_util::sync::CancellationToken;

use crate::support::lines::Lines;
use crate::support::process::pending;
use crate::support::{
    Bounded, TestApp, claims_in, eventually, lane, later, patience, user, write_all,
};

/// Reads entries as a worker that dies then.
async fn deliver_to_a_worker_that_dies(app: &TestApp) -> Vec<LoggedClaim> {
    let stores = &app.app.stores;
    let log = OrderLog::new(stores.fleet.first().clone(), &stores.keys, lane());
    log.ensure_group().bounded().await.unwrap();
    claims_in(&log.read_new(1_000, Duration::ZERO).await.unwrap().entries)
}

/// Reads and writes as a worker that dies between the commit and the acknowledgement. Returns the rows it wrote.
async fn write_by_a_worker_that_dies(app: &TestApp) -> usize {
    let entries = deliver_to_a_worker_that_dies(app).await;
    let written = app
        .app
        .orders
        .write((lane(), 1), Origin::Lane(None), &entries, &CancellationToken::new())
        .await;
    written.unwrap().inserted
}

async fn claims(app: &TestApp, coupon: CouponId, users: std::ops::RangeInclusive<i64>) {
    for user in users {
        assert_eq!(app.claim(user, coupon).await.status, 202);
    }
}

#[tokio::test]
async fn entries_of_a_worker_that_died_before_the_commit_are_written() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    claims(&app, coupon, 1..=5).await;
    assert_eq!(deliver_to_a_worker_that_dies(&app).await.len(), 5);

    let mut worker = app.worker(lane());
    let report = write_all(&mut worker).await;
    assert_eq!((report.inserted, report.repeated), (5, 0));
}

#[tokio::test]
async fn entries_of_a_worker_that_died_before_acknowledging_are_not_written_twice() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    claims(&app, coupon, 1..=5).await;
    assert_eq!(write_by_a_worker_that_dies(&app).await, 5);

    let mut worker = app.worker(lane());
    let report = write_all(&mut worker).await;
    assert_eq!((report.inserted, report.repeated, report.dead_letters), (0, 5, 0));
    assert_eq!(app.number("SELECT sold FROM flash_sales").await, 5);
}

#[tokio::test]
async fn a_row_that_has_moved_on_is_still_recognised() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    claims(&app, coupon, 1..=1).await;
    write_by_a_worker_that_dies(&app).await;
    app.execute("UPDATE orders SET status = 'paid', paid_at = now(), pay_method = 'balance'").await;

    let mut worker = app.worker(lane());
    let report = write_all(&mut worker).await;
    assert_eq!((report.repeated, report.dead_letters), (1, 0));
}

#[tokio::test]
async fn nothing_is_written_once_the_locks_are_lost() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    claims(&app, coupon, 1..=1).await;
    let entries = deliver_to_a_worker_that_dies(&app).await;
    let lost = CancellationToken::new();
    lost.cancel();
    let refused = app.app.orders.write((lane(), 1), Origin::Lane(None), &entries, &lost).await;
    assert!(matches!(refused, Err(NotWritten::LocksLost)), "{refused:?}");
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 0);
}

#[tokio::test]
async fn a_worker_that_slept_through_a_recovery_writes_nothing() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    claims(&app, coupon, 1..=2).await;
    let entries = deliver_to_a_worker_that_dies(&app).await;
    app.execute("UPDATE lanes SET epoch = 2").await;
    let refused = app
        .app
        .orders
        .write((lane(), 1), Origin::Lane(None), &entries, &CancellationToken::new())
        .await;
    assert!(matches!(refused, Err(NotWritten::Stale)), "{refused:?}");
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 0);
    app.execute("UPDATE lanes SET epoch = 1").await;
}

#[tokio::test]
async fn a_busy_lock_leaves_the_entry_pending_and_holds_up_nobody_else() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    let key = app.keys().order_lock(lane(), user(2));
    let held = app.app.locks.first().try_acquire_batch(vec![key]).await.unwrap();
    claims(&app, coupon, 1..=3).await;

    let mut worker = app.worker(lane());
    worker.ensure_group().bounded().await.unwrap();
    let report = worker.write_job().bounded().await.unwrap();
    assert_eq!((report.inserted, report.contended), (2, 1));
    // The entry is tried again, in vain, as long as the lock is held; new entries go past it.
    claims(&app, coupon, 4..=4).await;
    let mut writes = async || worker.write_job().bounded().await.unwrap().inserted > 0;
    eventually("the new entry is written", &mut writes).await;
    assert_eq!(app.my_claim(2, coupon).await.text("status"), "pending");

    held.release().await;
    eventually("the entry is written", writes).await;
    assert_eq!(app.my_claim(2, coupon).await.text("status"), "unpaid");
}

#[tokio::test]
async fn poison_becomes_dead_letters_and_the_good_rows_are_written_in_the_same_job() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(4).await;
    let regular = app.create_regular().await;
    let id = coupon.to_string();
    let regular = regular.to_string();
    claims(&app, coupon, 1..=1).await;
    let first = app.my_claim(1, coupon).await.order_id().to_string();
    // Each line is an entry that can't become an order, with the reason.
    let poison: [(&str, &[&str]); 8] = [
        ("undecodable", &["junk", "junk"]),
        ("undecodable", &["coupon", &id, "user", "-5", "order", "7"]),
        ("undecodable", &["coupon", &id, "user", "5", "order", "99999999999999999999"]),
        ("invalid", &["coupon", "999424", "user", "6", "order", "8"]),
        ("invalid", &["coupon", &regular, "user", "6", "order", "9"]),
        ("conflict", &["coupon", &id, "user", "77", "order", &first]),
        ("conflict", &["coupon", &id, "user", "1", "order", "10"]),
        ("undecodable", &["coupon", &id, "coupon", "x"]),
    ];
    for (_, fields) in poison {
        app.append(lane(), fields).await;
    }
    claims(&app, coupon, 2..=3).await;

    let mut worker = app.worker(lane());
    worker.ensure_group().bounded().await.unwrap();
    let report = worker.write_job().bounded().await.unwrap();
    assert_eq!((report.positions, report.inserted, report.dead_letters), (11, 3, 8));
    for reason in ["undecodable", "invalid", "conflict"] {
        let expected = poison.iter().filter(|(expected, _)| *expected == reason).count();
        let found = app
            .number(&format!("SELECT count(*) FROM dead_letters WHERE reason = '{reason}'"))
            .await;
        assert_eq!(usize::try_from(found).unwrap(), expected, "{reason}");
    }
    // Dead letters keep the bytes of the log.
    let kept = "SELECT count(*) FROM dead_letters WHERE payload = ARRAY['junk', 'junk']::bytea[]";
    assert_eq!(app.number(kept).await, 1);
}

#[tokio::test]
async fn a_row_that_postgres_refuses_costs_no_other_order() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(500).await;
    for n in 1..=500 {
        let claimed = app.app.claims.claim(coupon, user(n)).await.unwrap();
        assert_eq!(claimed.status().http, 202);
    }
    app.execute("ALTER TABLE orders ADD CONSTRAINT refused CHECK (user_id <> 250)").await;
    let report = app.write_orders().await;
    assert_eq!((report.inserted, report.dead_letters), (499, 1));
}

#[tokio::test]
async fn a_claim_that_conflicts_with_an_older_live_order_is_in_review() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let first = app.claim(1, coupon).await.order_id();
    app.write_orders().await;
    // Redis went back to a time before the claim: the unit is there again, and the buyer isn't.
    app.forget_buyer(coupon, 1).await;
    let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", "1"]).await;
    let second = app.claim(1, coupon).await;
    assert_eq!(second.status, 202);
    assert_ne!(second.order_id(), first);

    assert_eq!(app.write_orders().await.dead_letters, 1);
    let mine = app.my_claim(1, coupon).await;
    assert_eq!((mine.order_id(), mine.text("status")), (second.order_id(), "in_review"));
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 1);
    let named = app.reconcile().await.disagreements;
    assert!(
        named.iter().any(|line| line.to_string().contains("is no buyer by it in Redis")),
        "{named:?}"
    );
    app.expect_disagreements();
}

#[tokio::test]
async fn postgres_refuses_to_oversell_whatever_the_log_says() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    let id = coupon.to_string();
    claims(&app, coupon, 1..=2).await;
    for n in 100..103 {
        let n = n.to_string();
        app.append(lane(), &["coupon", &id, "user", &n, "order", &n]).await;
    }
    let report = app.write_orders().await;
    assert_eq!((report.inserted, report.dead_letters), (2, 3));
    assert_eq!(app.number("SELECT count(*) FROM dead_letters WHERE reason = 'oversold'").await, 3);
}

#[tokio::test]
async fn a_promise_that_is_a_dead_letter_is_in_review() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    let order = app.claim(1, coupon).await.order_id();
    // Another order has taken the claim's order id.
    let regular = app.create_regular().await;
    let taken = format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at) VALUES ({order}, {regular}, 'regular', 9, now())"
    );
    app.execute(&taken).await;
    assert_eq!(app.write_orders().await.dead_letters, 1);
    // The row under this id belongs to another user; the fate of the claim itself counts.
    let mine = app.my_claim(1, coupon).await;
    assert_eq!((mine.order_id(), mine.text("status")), (order, "in_review"));
    assert_eq!(app.get(&format!("/v1/orders/{order}"), &app.token(1)).await.status, 404);
    assert_eq!(app.reconcile().await.sales[0].in_review, 1);
}

#[tokio::test]
async fn an_entry_that_was_deleted_while_pending_is_an_alarm() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(3).await;
    claims(&app, coupon, 1..=3).await;
    let log = app.log(lane());
    let delivered = deliver_to_a_worker_that_dies(&app).await;
    for claim in &delivered[..2] {
        let _: i64 = app.redis(&["XDEL", &log, &claim.place.entry.to_string()]).await;
    }
    let lines = Lines::heard();
    let report = app.write_orders().await;
    assert_eq!((report.inserted, report.dead_letters), (1, 2));
    assert_eq!(lines.count("ALARM: an entry was deleted from the order log"), 2);
    assert_eq!(
        app.number("SELECT count(*) FROM dead_letters WHERE reason = 'deleted_from_log'").await,
        2
    );
    let lost = app.reconcile().await.disagreements;
    let lost = lost.iter().filter(|d| d.to_string().ends_with("It is lost")).count();
    assert_eq!(lost, 2, "both buyers are named");
    app.expect_disagreements();
}

#[tokio::test]
async fn a_vanished_group_is_read_again_from_the_start() {
    for lanes in [1, 4] {
        let app = TestApp::with_lanes(lanes).await;
        let coupon = app.create_flash(10).await;
        claims(&app, coupon, 1..=3).await;
        worker::start(&app.app, &app.config);
        eventually("three rows", async || app.number("SELECT count(*) FROM orders").await == 3)
            .await;

        let log = app.log(coupon.lane());
        let _: i64 = app.redis(&["XGROUP", "DESTROY", &log, "order-writers"]).await;
        claims(&app, coupon, 4..=5).await;
        eventually("five rows", async || app.number("SELECT count(*) FROM orders").await == 5)
            .await;
        assert_eq!(app.number("SELECT count(*) FROM dead_letters").await, 0);
        assert!(app.app.shutdown.stop(patience()).await);
    }
}

#[tokio::test]
async fn the_orders_of_a_vanished_log_become_rows() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    let log = app.log(lane());
    worker::start(&app.app, &app.config);
    start_housekeeping(&app.app);
    claims(&app, coupon, 1..=1).await;
    let rows = async || app.number("SELECT count(*) FROM orders").await;
    eventually("a row", async || rows().await == 1).await;

    // In one step: an unread claim by user 2, the loss of the log, and a claim by user 3, which creates the log anew
    // before the worker can see that it was gone: as a process of an older version does.
    let script = "
        redis.call('HSET', KEYS[2], '2', '99', '3', '100')
        redis.call('HINCRBY', KEYS[3], 'stock', -2)
        redis.call('DEL', KEYS[1])
        return redis.call('XADD', KEYS[1], '*', 'coupon', ARGV[1], 'user', '3', 'order', '100')";
    let buyers = app.keys().buyers(coupon, 0);
    let sale = app.keys().coupon(coupon);
    let id = coupon.to_string();
    let _: String = app.redis(&["EVAL", script, "3", &log, &buyers, &sale, &id]).await;
    // The worker notices, or a comparison.
    eventually("the orders of users 2 and 3", async || rows().await == 3).await;

    // The sale goes on.
    eventually("the lane is open", async || app.claim(4, coupon).await.status == 202).await;
    eventually("the others are written", async || rows().await == 4).await;
    assert!(app.reconcile().await.agrees());
    assert!(app.app.shutdown.stop(patience()).await);
}

#[tokio::test]
async fn a_worker_that_stops_writes_what_is_there() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    worker::start(&app.app, &app.config);
    claims(&app, coupon, 1..=1).await;
    eventually("a row", async || app.number("SELECT count(*) FROM orders").await == 1).await;
    claims(&app, coupon, 2..=5).await;
    assert!(app.app.shutdown.stop(patience()).await);
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 5);
}

#[tokio::test]
async fn a_lane_that_is_added_gets_a_worker() {
    let app = TestApp::start().await;
    worker::start(&app.app, &app.config);
    app.execute("UPDATE settings SET lanes = 4").await;
    app.app.leaders.first().run_once().bounded().await.expect("both stores answer");
    let mut coupon = app.create_flash(3).await;
    while coupon.lane() == lane() {
        coupon = app.create_flash(3).await;
    }
    claims(&app, coupon, 1..=3).await;
    eventually("three rows", async || app.number("SELECT count(*) FROM orders").await == 3).await;
    assert!(app.app.shutdown.stop(patience()).await);
}

/// A recovery raises the epoch in Postgres first. Until Redis has it, too, Redis may lose what the recovery hasn't seen.
#[tokio::test]
async fn entries_are_written_only_once_redis_has_the_epoch_of_the_lane() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(3).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    let mut worker = app.worker(lane());
    worker.ensure_group().bounded().await.expect("Redis answers");
    app.execute("UPDATE lanes SET epoch = epoch + 1").await;
    app.app.lanes.read_now().await.expect("Postgres answers");
    assert!(worker.write_job().bounded().await.is_err());
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 0);
    for key in [app.keys().lane(lane()), app.keys().coupon(coupon)] {
        let _: i64 = app.redis(&["HINCRBY", &key, "epoch", "1"]).await;
    }
    assert_eq!(worker.write_job().bounded().await.expect("both stores answer").inserted, 1);
}

#[tokio::test]
async fn claims_on_other_sales_become_rows_while_a_session_keeps_a_sale_locked() {
    const ALARM: &str = "ALARM: another session keeps the row of a sale locked in Postgres";
    let app = TestApp::start().await;
    let (bad, good) = (app.create_flash(9).await, app.create_flash(9).await);
    let mut worker = app.worker(lane());
    worker.ensure_group().bounded().await.unwrap();
    let lock = format!("SELECT FROM flash_sales WHERE coupon_id = {bad} FOR UPDATE");
    let other = app.holding(&lock).await;
    // A statement that waits for a lock ends with this code once it has waited for long. Here it ends at once.
    app.refuse("INSERT", "orders", &format!("NEW.coupon_id = {bad}"), "55P03").await;
    let lines = Lines::heard();

    claims(&app, good, 1..=3).await;
    claims(&app, bad, 1..=3).await;
    let report = worker.write_job().bounded().await.expect("both stores answer");
    assert_eq!((report.inserted, report.contended, report.dead_letters), (3, 3, 0));
    assert_eq!(pending(&app).await, 3);
    let named = lines.with(ALARM).concat();
    assert!(named.contains("process") && named.contains("idle in transaction"), "{named}");
    let timed = app.metric("flash_sale_claim_to_row_seconds_count").await;
    assert!((timed - 3.0).abs() < 0.1, "{timed}");
    for user in 4..=6 {
        claims(&app, bad, user..=user).await;
        claims(&app, good, user..=user).await;
        let report = worker.write_job().bounded().await.expect("both stores answer");
        assert_eq!((report.inserted, report.dead_letters), (1, 0));
        later(limits::LOCKED_SALES_PAUSE).await;
    }
    assert_eq!(lines.count(ALARM), 1, "it is told once");

    other.rollback().await.expect("Postgres answers");
    app.accept("orders").await;
    later(limits::LOCKED_SALES_PAUSE).await;
    let report = write_all(&mut worker).await;
    assert_eq!((report.inserted, report.dead_letters), (6, 0));
    assert_eq!(pending(&app).await, 0);
}

/// A failure is about a locked sale only if Postgres says that a lock was waited for, and a sale is locked.
#[tokio::test]
async fn what_is_not_a_locked_sale_fails_the_job() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(9).await;
    let mut worker = app.worker(lane());
    worker.ensure_group().bounded().await.unwrap();
    claims(&app, coupon, 1..=1).await;
    for (state, locked) in [("55P03", "SELECT 1"), ("57014", "SELECT FROM flash_sales FOR UPDATE")]
    {
        let other = app.holding(locked).await;
        app.refuse("INSERT", "orders", "true", state).await;
        let failed = worker.write_job().bounded().await;
        assert!(failed.is_err(), "{state}: {failed:?}");
        other.rollback().await.expect("Postgres answers");
        app.accept("orders").await;
    }
    assert_eq!(write_all(&mut worker).await.inserted, 1);
}
