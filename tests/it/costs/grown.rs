//! A database with the orders of a year (`scripts/seed`): a small one with each test run, and a large one by hand,
//! whose times are printed. No time is asserted.
//!
//! `cargo test --release --locked --test it costs::grown -- --ignored --nocapture --test-threads 1`; `SEED_ORDERS` says
//! how many orders the large one has.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flash_sale::base::clock::Clock;
use flash_sale::sale::order::counts;
use sqlx::{Connection, PgConnection};
use tokio::time::Instant;

use crate::support::process::{Finished, run};
use crate::support::{OwnServers, TestApp, lane};

/// Orders of the small database, and of the large one.
const SMALL: &str = "20000";
const LARGE: &str = "2000000";
/// Times that each look is taken, and requests of each kind.
const LOOKS: usize = 5;
const REQUESTS: usize = 500;
/// Batches of each kind of insert, and their rows.
const BATCHES: usize = 100;
const BATCH_ROWS: i64 = 1_000;

/// The script with these options, and the number of orders behind them.
fn script(app: &TestApp, arguments: &[&str]) -> Command {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/seed"));
    let (options, orders) = arguments.split_at(arguments.len() - 1);
    command.args(options).arg(&app.store_arguments()[3]).args(orders);
    command
}

async fn seed(app: &TestApp, arguments: &[&str]) -> Finished {
    run(script(app, arguments)).await
}

/// As if Redis had lost all it had: the open sales are built from Postgres.
async fn build_in_redis(app: &TestApp) {
    let _: i64 = app.redis(&["DEL", &app.keys().lane(lane())]).await;
    app.recover().await;
}

#[tokio::test]
async fn a_seeded_database_is_one_that_this_version_has_written() {
    let app = TestApp::start().await;
    let seeded = seed(&app, &["--open", "2", SMALL]).await;
    assert!(seeded.code == Some(0), "{}", seeded.stderr);
    assert!(seeded.stdout.contains("orders 20000 rows"), "{}", seeded.stdout);
    assert_eq!(app.number("SELECT count(*) FROM payments").await, 40_000);
    let closed = "SELECT count(*) FROM orders WHERE NOT is_live(status)";
    let returns = "SELECT count(*) FROM stock_returns WHERE what = 'unit' AND done_at IS NOT NULL";
    assert_eq!(app.number(returns).await, app.number(closed).await);
    build_in_redis(&app).await;
    let report = app.reconcile().await;
    assert!(report.agrees(), "{:?}", report.disagreements);
    assert_eq!(report.sales.len(), 2);
    assert_eq!(report.orders.values().sum::<i64>(), 20_000);
    assert_eq!(report.orders["redeemed"], 10_800, "60 of a hundred in 18 sales");
    assert_eq!(report.orders["unpaid"], 1_540, "77 of a hundred in the two open ones");

    let refused = seed(&app, &["100"]).await;
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("the database has orders"), "{}", refused.stderr);
    assert_eq!(seed(&app, &["--beside", "100"]).await.code, Some(0));
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 20_100);
    assert!(app.reconcile().await.agrees());
}

#[tokio::test]
async fn bad_arguments_of_the_seed_are_named() {
    let app = TestApp::start().await;
    for (arguments, said) in [
        (&["--all", "5"][..], "there is no option --all"),
        (&["0"], "ORDERS is a number"),
        (&["ten"], "ORDERS is a number"),
        (&["--open", "-1", "5"], "SALES is a number"),
        (&["5", "5"], "Usage"),
    ] {
        let told = seed(&app, arguments).await;
        assert_eq!(told.code, Some(2), "{arguments:?}");
        assert!(told.stderr.contains(said), "{arguments:?}: {}", told.stderr);
    }
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 0);
}

/// The time of the middle one of some looks.
async fn median(mut look: impl AsyncFnMut()) -> Duration {
    let mut took = Vec::new();
    for _ in 0..LOOKS {
        let began = Instant::now();
        look().await;
        took.push(began.elapsed());
    }
    took.sort();
    took[LOOKS / 2]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: it measures"]
async fn long_a_year_of_orders() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &["--database-timeout-ms", "10000"], Clock::System).await;
    let began = Instant::now();
    // Takes minutes, which is no hang.
    let seeded = script(&app, &["--open", "2", &orders()]).output().expect("it is there");
    assert!(seeded.status.success(), "{}", String::from_utf8_lossy(&seeded.stderr));
    println!("seeded in {:.0?}", began.elapsed());
    println!("{}", String::from_utf8_lossy(&seeded.stdout));
    let began = Instant::now();
    build_in_redis(&app).await;
    println!("the open sales are built in {:.2?}", began.elapsed());

    let pool = &app.app.stores.pool;
    let counted = async || drop(counts::all(pool).await.expect("Postgres answers"));
    println!("all orders by running counts: {:.2?}", median(counted).await);
    let each_row =
        "SELECT count(*) FROM (SELECT status, count(*) FROM orders GROUP BY 1) AS counted";
    let by_row = async || assert!(app.number(each_row).await > 0);
    println!("all orders row by row: {:.2?}", median(by_row).await);
    let numbers = async || app.app.numbers.pass().await.expect("both stores answer");
    println!("gauges: {:.2?}", median(numbers).await);
    let compare = async || assert!(app.reconcile().await.agrees());
    println!("comparison of {} sales: {:.2?}", 2, median(compare).await);
    print_requests(&app).await;

    app.execute("UPDATE orders SET pay_by = now() - interval '1 s' WHERE status = 'unpaid'").await;
    let (began, mut expired) = (Instant::now(), 0);
    while let more @ 1.. = app.expire().await {
        expired += more;
    }
    println!("expiry: {expired} orders, {:.0}/s", expired as f64 / began.elapsed().as_secs_f64());
    let (began, mut back) = (Instant::now(), 0);
    while let more @ 1.. = app.give_back().await {
        back += more;
    }
    println!("returns: {back} units, {:.0}/s", back as f64 / began.elapsed().as_secs_f64());
    migrate_beside_a_writer(&app).await;
}

/// Prints the times of each kind of reading request, one after the other.
async fn print_requests(app: &TestApp) {
    let order = app.number("SELECT min(id) FROM orders").await;
    let user = app.number(&format!("SELECT user_id FROM orders WHERE id = {order}")).await;
    let coupon = app.number("SELECT max(id) FROM coupons").await;
    let (own, admin) = (app.token(user), app.admin_token());
    let requests = [
        ("a user's orders", "/v1/orders".to_owned(), &own),
        ("an order", format!("/v1/orders/{order}"), &own),
        ("coupons", "/v1/coupons".to_owned(), &own),
        ("a coupon", format!("/v1/coupons/{coupon}"), &own),
        ("a user's claim", format!("/v1/coupons/{coupon}/claims/me"), &own),
        ("orders, searched by coupon", format!("/v1/orders?coupon={coupon}"), &admin),
        ("orders, searched by user", format!("/v1/orders?user={user}"), &admin),
        ("orders, searched by status", "/v1/orders?status=refunding".to_owned(), &admin),
        ("payments that wait", "/v1/payments/owed".to_owned(), &admin),
        ("dead letters", "/v1/dead-letters".to_owned(), &admin),
        ("postponed items", "/v1/postponed".to_owned(), &admin),
    ];
    for (what, path, token) in requests {
        let mut took = Vec::with_capacity(REQUESTS);
        for _ in 0..REQUESTS {
            let began = Instant::now();
            assert_eq!(app.get(&path, token).await.status, 200, "{path}");
            took.push(began.elapsed());
        }
        took.sort();
        println!("{what}: p50 {:.2?}, p99 {:.2?}", took[REQUESTS / 2], took[REQUESTS * 99 / 100]);
    }
}

#[tokio::test]
#[ignore = "long: it measures"]
async fn long_what_the_running_counts_cost_a_batch() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    app.expect_disagreements();
    let coupon = app.create_flash(9).await;
    let mut connection =
        PgConnection::connect(&app.store_arguments()[3]).await.expect("Postgres answers");
    let mut ratios = Vec::new();
    let mut first = 1;
    for round in 0..BATCHES {
        let mut took = [Duration::ZERO; 2];
        let mut kinds: Vec<_> = ["DISABLE", "ENABLE"].iter().zip(&mut took).collect();
        if round % 2 == 1 {
            kinds.reverse();
        }
        for (triggers, took) in kinds {
            let switch = format!("ALTER TABLE orders {triggers} TRIGGER USER");
            sqlx::raw_sql(sqlx::AssertSqlSafe(switch))
                .execute(&mut connection)
                .await
                .expect("it may");
            let batch = format!(
                "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_cents, currency, pay_by)
                 SELECT n, {coupon}, 'flash', n, now(), 4750, 'CNY', now()
                 FROM generate_series({first}, {first} + {BATCH_ROWS} - 1) AS n"
            );
            let began = Instant::now();
            sqlx::raw_sql(sqlx::AssertSqlSafe(batch))
                .execute(&mut connection)
                .await
                .expect("new rows");
            *took = began.elapsed();
            first += BATCH_ROWS;
        }
        ratios.push(took[1].as_secs_f64() / took[0].as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    println!("a batch of {BATCH_ROWS} rows, with triggers to without: {:.3}", ratios[BATCHES / 2]);
}

/// Undoes the newest migrations, and runs them again while a client writes.
async fn migrate_beside_a_writer(app: &TestApp) {
    app.expect_disagreements();
    app.execute(
        "DROP TABLE order_counts, order_count_changes, order_count_audit;
         DROP FUNCTION count_new_orders, count_changed_orders, count_deleted_orders CASCADE;
         DROP INDEX dead_letters_open_of_coupon;
         CREATE INDEX stock_returns_open ON stock_returns (updated_at) WHERE done_at IS NULL",
    )
    .await;
    let is_migrated = AtomicBool::new(false);
    let writing = async {
        let (mut longest, mut id) = (Duration::ZERO, 0);
        while !is_migrated.load(Ordering::SeqCst) {
            id += 1;
            let began = Instant::now();
            app.execute(&format!(
                "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at) VALUES ({id}, 7, 'flash', {id}, now())"
            ))
            .await;
            longest = longest.max(began.elapsed());
        }
        (longest, id)
    };
    let migrating = async {
        let url = &app.store_arguments()[3];
        let mut connection = PgConnection::connect(url).await.expect("Postgres answers");
        for migration in [
            include_str!("../../../migrations/0028_order_counts.sql"),
            include_str!("../../../migrations/0029_older_orders_counted.sql"),
        ] {
            let began = Instant::now();
            let run = format!("BEGIN; {migration}; COMMIT");
            sqlx::raw_sql(sqlx::AssertSqlSafe(run))
                .execute(&mut connection)
                .await
                .expect("it fits");
            println!("a migration took {:.2?}", began.elapsed());
        }
        is_migrated.store(true, Ordering::SeqCst);
    };
    let ((longest, writes), ()) = tokio::join!(writing, migrating);
    println!("of {writes} writes beside, the longest took {longest:.2?}");
    let counted: i64 =
        counts::all(&app.app.stores.pool).await.expect("it answers").of_status.values().sum();
    assert_eq!(counted, app.number("SELECT count(*) FROM orders").await);
}

/// Orders of a large database.
#[expect(clippy::disallowed_methods, reason = "a setting of the tests, not of the service")]
fn orders() -> String {
    std::env::var("SEED_ORDERS").unwrap_or_else(|_| LARGE.to_owned())
}
