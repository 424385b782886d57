//! A database with the orders of a year (`scripts/seed`): a small one with each test run, and a large one by hand,
//! whose times are printed, and written into docs/performance.md. No time is asserted.
//!
//! `make grown`; `SEED_ORDERS` says how many orders the large one has.

use std::fmt::Display;
use std::fs;
use std::process::Command;
use std::time::Duration;

use flash_sale::base::clock::Clock;
use flash_sale::sale::claim::outcome::ClaimOutcome;
use flash_sale::sale::order::counts;
use futures_util::future::join_all;
use sqlx::{Connection, PgConnection};
use tokio::time::Instant;

use crate::support::process::{Finished, run};
use crate::support::{OwnServers, TestApp, lane, user};

/// Orders of the small database, and of the large one.
const SMALL: &str = "20000";
const LARGE: &str = "2000000";
/// Times that each look is taken, and requests of each kind.
const LOOKS: usize = 5;
const REQUESTS: usize = 500;
/// Claims of one moment, and the time from one moment to the next: 2,000 a second.
const CLAIMS_AT_ONCE: usize = 20;
const CLAIMS_PERIOD: Duration = Duration::from_millis(10);
/// Marks of the table in docs/performance.md.
const MARKS: [&str; 2] = ["<!-- grown:begin -->", "<!-- grown:end -->"];
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

/// Rows of the table that a measurement prints.
#[derive(Default)]
struct Table(Vec<String>);

impl Table {
    fn add(&mut self, thing: &str, figure: impl Display) {
        println!("{thing}: {figure}");
        self.0.push(format!("| {thing} | {figure} |"));
    }

    /// Writes the table into docs/performance.md, between its marks.
    fn write(&self) {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/performance.md");
        let text = fs::read_to_string(path).expect("it is there");
        let (before, rest) = text.split_once(MARKS[0]).expect("the first mark");
        let (_, after) = rest.split_once(MARKS[1]).expect("the second mark");
        let rows = self.0.join("\n");
        let [begin, end] = MARKS;
        let table = format!("{before}{begin}\n| thing | figure |\n|---|---|\n{rows}\n{end}{after}");
        fs::write(path, table).expect("it may be written");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: it measures"]
async fn long_a_year_of_orders() {
    // On a disk: ten million orders are 13 GB.
    let servers = OwnServers::durable();
    let settings = ["--database-timeout-ms", "10000", "--user-requests-per-second", "0"];
    let app = TestApp::on(&servers.at, &settings, Clock::System).await;
    let mut table = Table::default();
    let began = Instant::now();
    // Takes minutes, which is no hang.
    let seeded = script(&app, &["--open", "2", &orders()]).output().expect("it is there");
    assert!(seeded.status.success(), "{}", String::from_utf8_lossy(&seeded.stderr));
    table.add("orders", orders());
    table.add("seeding", format!("{:.0?}", began.elapsed()));
    println!("{}", String::from_utf8_lossy(&seeded.stdout));
    let began = Instant::now();
    build_in_redis(&app).await;
    table.add("the open sales, built in Redis", format!("{:.2?}", began.elapsed()));

    let pool = &app.app.stores.pool;
    let counted = async || drop(counts::all(pool).await.expect("Postgres answers"));
    table.add("all orders by running counts", format!("{:.2?}", median(counted).await));
    let each_row =
        "SELECT count(*) FROM (SELECT status, count(*) FROM orders GROUP BY 1) AS counted";
    let by_row = async || assert!(app.number(each_row).await > 0);
    table.add("all orders row by row", format!("{:.2?}", median(by_row).await));
    let numbers = async || app.app.numbers.pass().await.expect("both stores answer");
    table.add("gauges", format!("{:.2?}", median(numbers).await));
    let compare = async || assert!(app.reconcile().await.agrees());
    table.add("full comparison of the open sales", format!("{:.2?}", median(compare).await));
    // The first one reads all that was never read.
    let changed = async || {
        app.execute(
            "UPDATE reconcile_runs SET started_at = '2022-01-01', finished_at = '2022-01-01'",
        )
        .await;
        app.app.reconciler.pass(Duration::from_secs(1)).await.expect("both stores answer");
    };
    let began = Instant::now();
    changed().await;
    table.add("comparison of what has changed, the first", format!("{:.2?}", began.elapsed()));
    table.add("the next ones", format!("{:.2?}", median(changed).await));
    beside_claims(&app, &mut table).await;

    // All at once, which takes longer than a statement of the service may.
    let due = "SET statement_timeout = 0;
        UPDATE orders SET pay_by = now() - interval '1 s' WHERE status = 'unpaid'";
    let mut operator =
        PgConnection::connect(&app.store_arguments()[3]).await.expect("Postgres answers");
    sqlx::raw_sql(due).execute(&mut operator).await.expect("it may");
    let (began, mut expired) = (Instant::now(), 0);
    while let more @ 1.. = app.expire().await {
        expired += more;
    }
    let seconds = began.elapsed().as_secs_f64();
    table.add("expiry", format!("{expired} orders, {:.0}/s", expired as f64 / seconds));
    let (began, mut back) = (Instant::now(), 0);
    while let more @ 1.. = app.give_back().await {
        back += more;
    }
    let seconds = began.elapsed().as_secs_f64();
    table.add("returns", format!("{back} units, {:.0}/s", back as f64 / seconds));
    table.write();
}

/// Takes the times of each kind of reading request while a sale is claimed and written.
async fn beside_claims(app: &TestApp, table: &mut Table) {
    let coupon = app.create_flash(10_000_000).await;
    let mut claims = Vec::new();
    let began = Instant::now();
    let claiming = async {
        let mut ticks = tokio::time::interval(CLAIMS_PERIOD);
        for first in (1_i64..).step_by(CLAIMS_AT_ONCE) {
            ticks.tick().await;
            let asked = Instant::now();
            let crowd = (first..).take(CLAIMS_AT_ONCE);
            let calls = crowd.map(|number| app.app.claims.claim(coupon, user(1 << 40 | number)));
            for outcome in join_all(calls).await {
                assert!(matches!(outcome, Ok(ClaimOutcome::Accepted(_))), "{outcome:?}");
            }
            claims.push(asked.elapsed());
        }
    };
    let writing = async {
        let mut worker = app.workers().remove(0);
        loop {
            worker.write_pass().await.expect("both stores answer");
        }
    };
    tokio::select! {
        () = claiming => unreachable!("the crowd has no end"),
        () = writing => {}
        () = time_requests(app, table) => {}
    }
    let rate = (claims.len() * CLAIMS_AT_ONCE) as f64 / began.elapsed().as_secs_f64();
    table.add("claims beside these requests", format!("{rate:.0}/s, {}", quantiles(claims)));
    app.write_orders().await;
}

fn quantiles(mut took: Vec<Duration>) -> String {
    took.sort();
    format!("p50 {:.2?}, p99 {:.2?}", took[took.len() / 2], took[took.len() * 99 / 100])
}

/// Takes the times of each kind of request, one after the other.
async fn time_requests(app: &TestApp, table: &mut Table) {
    let hot = app.number("SELECT max(id) FROM coupons").await;
    let order = app.number(&format!("SELECT max(id) FROM orders WHERE coupon_id < {hot}")).await;
    let of_order = |column| format!("SELECT {column} FROM orders WHERE id = {order}");
    let buyer = app.number(&of_order("user_id")).await;
    let coupon = app.number(&of_order("coupon_id")).await;
    let today = Clock::System.now().format("%Y-%m-%d");
    let paid = format!("SELECT max(id) FROM orders WHERE status = 'paid' AND coupon_id < {hot}");
    let paid = app.number(&paid).await;
    let payer = app.number(&format!("SELECT user_id FROM orders WHERE id = {paid}")).await;
    let code = app.code(payer, paid).await;
    let (own, payers, admin) = (app.token(buyer), app.token(payer), app.admin_token());
    let requests = [
        ("a user's orders", "/v1/orders".to_owned(), &own),
        ("an order", format!("/v1/orders/{order}"), &own),
        ("coupons", "/v1/coupons".to_owned(), &own),
        ("a coupon", format!("/v1/coupons/{coupon}"), &own),
        ("a user's claim", format!("/v1/coupons/{coupon}/claims/me"), &own),
        ("orders, searched by coupon", format!("/v1/orders?coupon={coupon}"), &admin),
        ("orders, searched by user", format!("/v1/orders?user={buyer}"), &admin),
        ("orders, searched by status", "/v1/orders?status=refunding".to_owned(), &admin),
        ("orders, searched by time", format!("/v1/orders?from={today}T00:00:00Z"), &admin),
        ("an order's payments", format!("/v1/orders/{paid}/payments"), &admin),
        ("an order's QR code", format!("/v1/orders/{paid}/qr"), &payers),
        ("a redemption code", format!("/v1/redemptions/{code}"), &admin),
        ("a coupon's progress", format!("/v1/coupons/{coupon}/progress"), &admin),
        ("payments that wait", "/v1/payments/owed".to_owned(), &admin),
        ("payments whose wait is over", "/v1/payments/owed?settled=true".to_owned(), &admin),
        ("dead letters", "/v1/dead-letters".to_owned(), &admin),
        ("postponed items", "/v1/postponed".to_owned(), &admin),
        ("what waits for an operator", "/v1/operations".to_owned(), &admin),
        ("audit", "/v1/audit".to_owned(), &admin),
        ("statistics of today", format!("/v1/statistics/days/{today}"), &admin),
        ("jobs", "/v1/jobs".to_owned(), &admin),
        ("recoveries", "/v1/recoveries".to_owned(), &admin),
        ("comparisons", "/v1/reconcile/runs".to_owned(), &admin),
    ];
    for (what, path, token) in requests {
        let asks =
            (0..REQUESTS).map(|_| app.client().get(app.url.clone() + &path).bearer_auth(token));
        table.add(what, quantiles(time_each(asks).await));
    }
    time_deeds(app, hot, table).await;
    let states = ["pause", "resume"].into_iter().cycle().take(REQUESTS);
    let asks = states.map(|state| {
        app.client().post(format!("{}/v1/coupons/{coupon}/{state}", app.url)).bearer_auth(&admin)
    });
    table.add("a coupon, paused or resumed", quantiles(time_each(asks).await));
}

/// Takes the times of requests that change orders, each another one.
async fn time_deeds(app: &TestApp, hot: i64, table: &mut Table) {
    let admin = app.admin_token();
    for (what, deed, status) in [
        ("an order, paid", "pay", "unpaid"),
        ("an order, cancelled", "cancel", "unpaid"),
        ("a paid order, refunded", "refund", "paid"),
        ("a paid order, redeemed", "redeem", "paid"),
    ] {
        let of_status =
            "SELECT id, user_id FROM orders WHERE status = $1 AND coupon_id < $2 LIMIT $3";
        let orders: Vec<(i64, i64)> = sqlx::query_as(of_status)
            .bind(status)
            .bind(hot)
            .bind(REQUESTS as i64)
            .fetch_all(&app.app.stores.pool)
            .await
            .expect("Postgres answers");
        let asks = orders.iter().map(|(id, user)| {
            let body = serde_json::json!({ "method": "balance" });
            let ask = app.client().post(format!("{}/v1/orders/{id}/{deed}", app.url));
            let ask = if deed == "pay" { ask.json(&body) } else { ask };
            ask.bearer_auth(if deed == "redeem" { admin.clone() } else { app.token(*user) })
        });
        table.add(what, quantiles(time_each(asks).await));
    }
}

/// The times to the last byte of these requests, one after the other. Replies are not held against `/openapi.json`,
/// which would take longer than most of them.
async fn time_each(requests: impl Iterator<Item = reqwest::RequestBuilder>) -> Vec<Duration> {
    let mut took = Vec::with_capacity(REQUESTS);
    for request in requests {
        let began = Instant::now();
        let reply = request.send().await.expect("the service answers");
        let (status, path) = (reply.status(), reply.url().path().to_owned());
        let body = reply.bytes().await.expect("a whole reply");
        took.push(began.elapsed());
        assert!(status.is_success(), "{path}: {status} {}", String::from_utf8_lossy(&body));
    }
    took
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

/// Orders of a large database.
#[expect(clippy::disallowed_methods, reason = "a setting of the tests, not of the service")]
fn orders() -> String {
    std::env::var("SEED_ORDERS").unwrap_or_else(|_| LARGE.to_owned())
}
