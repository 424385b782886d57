//! The passes over the whole installation: each is started, and a run that fails is counted and logged under its name.

use std::time::{Duration, Instant};

use flash_sale::app::App;
use flash_sale::base::limits;
use flash_sale::worker;

use super::bounds::{app_with_sale, late_orders, open_returns};
use crate::support::lines::{Lines, number};
use crate::support::{TestApp, eventually, lane, patience, tries};

const PASSES: [&str; 9] = [
    "numbers",
    "reconcile",
    "stock_returns",
    "changes",
    "warm_up",
    "archive",
    "expiry",
    "retention",
    "refunds",
];

#[tokio::test]
async fn each_pass_starts_at_once_and_every_failure_is_counted_under_its_name() {
    let app = TestApp::start().await;
    let worker = app.another_instance().await;
    // No pass can do without Postgres.
    worker.stores.pool.close().await;
    let lines = Lines::heard();
    worker::start(&worker, &app.config);
    for pass in PASSES {
        eventually(pass, async || failures(&worker, pass) >= 1.0).await;
        let said = format!("a pass failed; trying again pass=\"{pass}\"");
        assert!(lines.count(&said) >= 1, "{pass}");
    }
    assert!(worker.shutdown.stop(patience()).await, "no pass runs on");
}

fn failures(app: &App, pass: &str) -> f64 {
    number(app, &format!("flash_sale_pass_failures_total{{pass=\"{pass}\"}}"))
}

/// The comparison is looked for as often as its period says, and every 5 s at least; without a period, too, since an
/// operator may ask for one.
#[tokio::test]
async fn a_comparison_is_looked_for_within_its_period_and_told_once_a_second() {
    for (period_ms, is_often) in [("0", false), ("50", true), ("86400000", false)] {
        let app = TestApp::configured(&["--reconcile-period-ms", period_ms]).await;
        let worker = app.another_instance().await;
        worker.stores.pool.close().await;
        let lines = Lines::heard();
        let began = Instant::now();
        worker::start(&worker, &app.config);
        if is_often {
            let often = async || failures(&worker, "reconcile") >= 4.0;
            eventually("the comparison is looked for", often).await;
            // As many pauses as are between four looks.
            assert!(began.elapsed() >= Duration::from_millis(150));
        } else {
            // Twice a second.
            let twice = async || failures(&worker, "stock_returns") >= 2.0;
            eventually("another pass has run twice", twice).await;
            let looks = failures(&worker, "reconcile");
            if began.elapsed() < limits::RECONCILE_POLL {
                assert!((looks - 1.0).abs() < 0.1, "{looks} looks, period {period_ms} ms");
            }
        }
        let told = lines.count("a pass failed; trying again pass=\"reconcile\"");
        if began.elapsed() < limits::LOG_LINE_PAUSE {
            assert_eq!(told, 1, "period {period_ms} ms");
        }
        assert!(worker.shutdown.stop(patience()).await, "no pass runs on");
    }
}

#[tokio::test]
async fn a_log_that_is_new_or_empty_is_no_failure_of_the_passes_over_it() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let worker = app.another_instance().await;
    worker::start(&worker, &app.config);
    for buyer in 1..=2 {
        assert_eq!(app.claim(buyer, coupon).await.status, 202);
        let rows = async || app.number("SELECT count(*) FROM orders").await == buyer;
        eventually("the order is written", rows).await;
    }
    assert!(worker.shutdown.stop(patience()).await);
    for pass in ["write", "tidy_up"] {
        assert!(failures(&worker, pass) < 1.0, "{pass}");
    }
}

/// The pauses between two looks at the lanes, and between two runs of passes, end with the service.
#[tokio::test]
async fn a_service_that_has_just_started_stops_at_once() {
    let app = TestApp::start().await;
    for _ in tries() {
        let worker = app.another_instance().await;
        worker::start(&worker, &app.config);
        let log = worker.stores.keys.log(lane());
        let has_log = async || worker.stores.redis.query(redis::cmd("EXISTS").arg(&log)).await;
        eventually("the lane runs", async || matches!(has_log().await, Ok(true))).await;
        let began = Instant::now();
        assert!(worker.shutdown.stop(patience()).await);
        if began.elapsed() < limits::EXPIRY_PERIOD / 2 {
            break;
        }
    }
}

/// Words of the first statement of a run that expires orders, and of one that gives units and places back.
const EXPIRES: &str = "ORDER BY pay_by LIMIT $1 FOR UPDATE SKIP LOCKED";
const RETURNS: &str = "WITH RECURSIVE step (number, coupon_id)";

/// Runs of a pass that find nothing are a period apart.
#[tokio::test]
async fn a_pass_goes_on_with_nothing_only_after_its_period() {
    let app = TestApp::start().await;
    let worker = app.another_instance().await;
    let asked = Lines::down_to(tracing::Level::DEBUG);
    let expiries = || asked.count(EXPIRES);
    let returns = || asked.count(RETURNS);
    let began = Instant::now();
    worker::start(&worker, &app.config);
    let again = async || expiries() >= 1 && returns() >= 2;
    eventually("stock returns are looked for again", again).await;
    for (runs, period) in
        [(expiries(), limits::EXPIRY_PERIOD), (returns(), limits::STOCK_RETURN_PERIOD)]
    {
        let periods = began.elapsed().as_millis() / period.as_millis();
        assert!(runs as u128 <= periods + 1, "{runs} runs in {periods} periods");
    }
    assert!(worker.shutdown.stop(patience()).await);
}

/// Each run has a bound of its own.
#[tokio::test]
async fn a_service_that_is_stopping_leaves_the_items_of_the_next_run() {
    for (table, words, left) in [
        ("orders", EXPIRES, "SELECT count(*) FROM orders WHERE status = 'unpaid'"),
        ("stock_returns", RETURNS, "SELECT count(*) FROM stock_returns WHERE done_at IS NULL"),
    ] {
        let (app, coupon) = app_with_sale().await;
        match table {
            "orders" => late_orders(&app, coupon, 1, 5_001).await,
            _ => open_returns(&app, coupon, "place", 1, 10_001).await,
        }
        let worker = app.another_instance().await;
        let lock = format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
        let locked = app.holding(&lock).await;
        worker::start(&worker, &app.config);
        app.a_session_waits_in(words).await;
        let goes_on = async { locked.rollback().await.expect("Postgres answers") };
        let (stopped, ()) = tokio::join!(worker.shutdown.stop(patience()), goes_on);
        assert!(stopped && app.number(left).await > 0, "{table}");
    }
}

/// Seconds between the tenth batch and the next one, which another run closes, and the most between two of one run.
async fn pauses(app: &TestApp, moments: &str) -> (f64, f64) {
    let pauses = format!(
        "SELECT max(seconds) FILTER (WHERE number = 10), max(seconds) FILTER (WHERE number <> 10)
         FROM (SELECT extract(epoch FROM at - lag(at) OVER in_turn)::float8 AS seconds,
                      row_number() OVER in_turn - 1 AS number
               FROM ({moments}) AS moment (at) WINDOW in_turn AS (ORDER BY at)) AS batch"
    );
    let pauses = sqlx::query_as(sqlx::AssertSqlSafe(pauses)).fetch_one(&app.app.stores.pool).await;
    pauses.expect("there are more than ten batches")
}

/// On a slow machine, batches themselves are further apart than the period; then they are the measure.
#[tokio::test]
async fn a_run_that_leaves_items_is_followed_by_the_next_one_without_a_pause() {
    for (period, left, moments) in [
        (
            limits::EXPIRY_PERIOD,
            "SELECT count(*) FROM orders WHERE status = 'unpaid'",
            "SELECT DISTINCT expired_at FROM orders",
        ),
        (
            limits::STOCK_RETURN_PERIOD,
            "SELECT count(*) FROM stock_returns WHERE done_at IS NULL",
            "SELECT DISTINCT done_at FROM stock_returns",
        ),
    ] {
        let (app, coupon) = app_with_sale().await;
        if period == limits::EXPIRY_PERIOD {
            late_orders(&app, coupon, 1, 5_001).await;
        } else {
            open_returns(&app, coupon, "place", 1, 10_001).await;
        }
        let worker = app.another_instance().await;
        worker::start(&worker, &app.config);
        eventually("nothing is left", async || app.number(left).await == 0).await;
        assert!(worker.shutdown.stop(patience()).await);
        let (between, within) = pauses(&app, moments).await;
        let bound = period.as_secs_f64().max(2.0 * within);
        assert!(between < bound, "{between} s between two runs, up to {within} s within one");
    }
}
