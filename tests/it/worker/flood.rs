//! A flood of entries that can't become orders: they become dead letters together, and no other order waits for them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use flash_sale::base::clock::Clock;
use flash_sale::order::moves::{Asker, Moved};
use flash_sale::store::ids::CouponId;
use flash_sale::store::postgres;

use crate::support::{Bounded, OwnServers, TestApp, lane, user, write_all};

/// Appends entries by hand: order ids from `first` on, in a scattered order, each for a user of its own.
async fn append_all(app: &TestApp, coupon: CouponId, first: i64, count: i64) {
    let script = "for i = 0, ARGV[3] - 1 do
            local n = string.format('%d', ARGV[2] + (i * 7919) % ARGV[3])
            redis.call('XADD', KEYS[1], '*', 'coupon', ARGV[1], 'first', n, 'order', n, 'users', n)
        end
        return redis.call('XLEN', KEYS[1])";
    let words = [coupon.to_string(), first.to_string(), count.to_string()];
    let log = app.log(lane());
    let _: i64 = app.redis(&["EVAL", script, "1", &log, &words[0], &words[1], &words[2]]).await;
}

/// The order ids of these entries, in the order of the log.
fn scattered(first: i64, count: i64) -> impl Iterator<Item = i64> {
    (0..count).map(move |i| first + (i * 7_919) % count)
}

async fn orders_of(app: &TestApp, coupon: CouponId) -> BTreeSet<i64> {
    let query = format!("SELECT id FROM orders WHERE coupon_id = {coupon}");
    let ids = sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_all(&app.app.stores.pool).await;
    ids.expect("Postgres answers").into_iter().collect()
}

async fn letters(app: &TestApp, reason: &str) -> i64 {
    app.number(&format!("SELECT count(*) FROM dead_letters WHERE reason = '{reason}'")).await
}

#[tokio::test]
async fn of_a_flood_of_one_sale_as_many_become_orders_as_there_are_units() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &["--batch-orders-max", "10000"], Clock::System).await;
    let bad = app.create_flash(300).await;
    let good = app.create_flash(50).await;
    for n in 1..=25 {
        assert_eq!(app.claim(n, good).await.status, 202);
    }
    append_all(&app, bad, 10_000, 2_000).await;
    // Among them one with another order's id, one that is a row, one of a buyer who has an order; others are of a
    // coupon that doesn't exist.
    let none = CouponId::compose(999, 1);
    append_all(&app, none, 20_000, 500).await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
             VALUES (10000, {good}, 'flash', 77, now()), (10001, {bad}, 'flash', 10001, now()),
                    (9, {bad}, 'flash', 11919, now());
         UPDATE flash_sales SET sold = 2 WHERE coupon_id = {bad};
         UPDATE flash_sales SET sold = 1 WHERE coupon_id = {good}"
    ))
    .await;
    for n in 26..=49 {
        assert_eq!(app.claim(n, good).await.status, 202);
    }
    let mut worker = app.worker(lane());
    worker.ensure_group().bounded().await.unwrap();
    let report = worker.write_job().bounded().await.unwrap();

    assert_eq!((report.positions, report.repeated), (2_549, 1));
    assert_eq!((report.inserted, report.dead_letters), (298 + 49, 2_549 - 1 - 298 - 49));
    // 10,000 and 11,919 are conflicts.
    let others = scattered(10_000, 2_000).filter(|id| ![10_000, 10_001, 11_919].contains(id));
    let fitting = others.take(298).chain([9, 10_001]).collect();
    assert_eq!(orders_of(&app, bad).await, fitting, "in the order of the log");
    assert_eq!((app.sold(bad).await, app.sold(good).await), (300, 50));
    let by_reason = [letters(&app, "oversold").await, letters(&app, "conflict").await];
    assert_eq!((by_reason, letters(&app, "invalid").await), ([1_699, 2], 500));
    let statements = "SELECT count(DISTINCT xmin::text) FROM dead_letters";
    assert_eq!(app.number(statements).await, 1, "one transaction");
    // As it stood in the log.
    let kept =
        "SELECT count(*) FROM dead_letters WHERE order_id = user_id AND payload =
             ARRAY['coupon', coupon_id::text, 'user', user_id::text, 'order', order_id::text]::bytea[]";
    assert_eq!(app.number(kept).await, 2_201);

    assert_eq!(worker.write_job().bounded().await.unwrap().positions, 0);
    assert_eq!(app.reconcile().await.in_flight, 0);
    app.expect_disagreements();
}

#[tokio::test]
async fn a_flood_that_comes_again_changes_nothing() {
    let app = TestApp::configured(&["--batch-orders-max", "1000"]).await;
    let coupon = app.create_flash(10).await;
    append_all(&app, coupon, 10_000, 700).await;
    assert_eq!(app.write_orders().await.dead_letters, 690);
    for sold in [10, 9] {
        // A unit that has come back is for a new claim: those of the letters are an operator's.
        app.execute(&format!("UPDATE flash_sales SET sold = {sold}, updated_at = now()")).await;
        let log = app.log(lane());
        let _: String = app.redis(&["XGROUP", "SETID", &log, "order-writers", "0"]).await;
        let again = app.write_orders().await;
        assert_eq!((again.inserted, again.dead_letters, again.repeated), (0, 0, 700));
        assert_eq!((app.sold(coupon).await, letters(&app, "oversold").await), (sold, 690));
    }
    app.expect_disagreements();
}

#[tokio::test]
async fn several_workers_share_a_flood_while_units_come_back() {
    let app = TestApp::configured(&["--batch-orders-max", "100"]).await;
    let coupon = app.create_flash(500).await;
    append_all(&app, coupon, 10_000, 3_000).await;
    let mut workers = [app.worker(lane()), app.worker(lane()), app.worker(lane())];
    workers[0].ensure_group().bounded().await.unwrap();
    let [one, two, three] = &mut workers;
    let closing = async {
        let mut closed = 0;
        while closed < 50 {
            app.let_time_pass().await;
            // Some of the orders that are rows by now.
            let due = "SELECT id FROM orders WHERE status = 'unpaid' ORDER BY id LIMIT 5";
            let ids: Vec<i64> =
                sqlx::query_scalar(due).fetch_all(&app.app.stores.pool).await.unwrap();
            for id in ids {
                let order = flash_sale::store::ids::OrderId::new(id).unwrap();
                let cancelled =
                    app.app.order_moves.cancel(Asker::Buyer(user(id)), order).await.unwrap();
                closed += i64::from(matches!(cancelled, Moved::There(_)));
            }
        }
        closed
    };
    let (one, two, three, closed) =
        tokio::join!(write_all(one), write_all(two), write_all(three), closing);
    let inserted = one.inserted + two.inserted + three.inserted;
    let put_aside = one.dead_letters + two.dead_letters + three.dead_letters;
    assert_eq!(inserted + put_aside, 3_000, "each is one or the other");
    let rows = i64::try_from(inserted).unwrap();
    assert!(
        (500..=500 + closed).contains(&rows),
        "{rows} rows for 500 units and {closed} that came back"
    );
    assert_eq!(app.sold(coupon).await, rows - closed);
    app.expect_disagreements();
}

#[tokio::test]
async fn a_unit_that_comes_back_meanwhile_goes_to_the_next_entry() {
    for (entries, letters) in [(4, 3), (1, 0)] {
        let app = TestApp::start().await;
        let coupon = app.create_flash(2).await;
        let mut worker = app.worker(lane());
        worker.ensure_group().bounded().await.unwrap();
        append_all(&app, coupon, 10_000, 5).await;
        let first = write_all(&mut worker).await;
        assert_eq!((first.inserted, first.dead_letters), (2, 3));

        append_all(&app, coupon, 20_000, entries).await;
        let pool = &app.app.stores.pool;
        let mut coming_back = postgres::begin(pool).await.unwrap();
        let query = "UPDATE flash_sales SET sold = sold - 1, updated_at = now()";
        sqlx::query(query).execute(&mut *coming_back).await.unwrap();
        let comes_back = async {
            // Or the worker has given up: then it tries again.
            let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
            let began = Instant::now();
            while app.number(waits).await == 0 && began.elapsed() < Duration::from_secs(5) {}
            coming_back.commit().await.unwrap();
        };
        let (written, ()) = tokio::join!(worker.write_job(), comes_back);
        let mut sum = written.unwrap_or_default();
        let later = write_all(&mut worker).await;
        sum.inserted += later.inserted;
        sum.dead_letters += later.dead_letters;
        assert_eq!((sum.inserted, sum.dead_letters), (1, letters), "{entries} entries");
        assert_eq!(app.sold(coupon).await, 2);
        app.expect_disagreements();
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_put_aside_together() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let script = "for i = 1, 700 do redis.call('XADD', KEYS[1], '*', 'junk', i) end return 1";
    let _: i64 = app.redis(&["EVAL", script, "1", &app.log(lane())]).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    let mut worker = app.worker(lane());
    worker.ensure_group().bounded().await.unwrap();
    let report = worker.write_job().bounded().await.unwrap();
    assert_eq!((report.inserted, report.dead_letters), (1, 700));
    assert_eq!(app.number("SELECT count(DISTINCT xmin::text) FROM dead_letters").await, 1);
}
