//! Backlogs of orders that are late, and of units that come back: a worker works through them without a pause.

use std::time::Duration;

use flash_sale::base::limits::{
    EXPIRY_PERIOD, PASS_BATCHES_MAX, STOCK_RETURN_PERIOD, STOCK_RETURNS_BATCH,
};

use crate::support::process::Process;
use crate::support::{TestApp, eventually};

/// Whole runs of returned units; there are as many orders, which need more runs.
const RUNS: usize = 2;

/// Checks that a worker has not paused for this period between any two runs. `moments` is a query for the distinct times of
/// the transactions; each run but the last one has [`PASS_BATCHES_MAX`] of them. On a slow machine, transactions themselves
/// are further apart than the period; then they are the measure.
async fn assert_no_pause(app: &TestApp, moments: &str, period: Duration) {
    let pauses = format!(
        "SELECT min(seconds) FILTER (WHERE begins), max(seconds) FILTER (WHERE NOT begins)
         FROM (SELECT extract(epoch FROM at - lag(at) OVER in_turn)::float8 AS seconds,
                      (row_number() OVER in_turn - 1) % {PASS_BATCHES_MAX} = 0 AS begins
               FROM ({moments}) AS moment (at) WINDOW in_turn AS (ORDER BY at)) AS batch"
    );
    let (between, within): (f64, f64) = sqlx::query_as(sqlx::AssertSqlSafe(pauses))
        .fetch_one(&app.app.stores.pool)
        .await
        .expect("Postgres answers");
    println!("{between} s between two runs, up to {within} s within one");
    let bound = period.as_secs_f64().max(2.0 * within);
    assert!(between < bound, "{between} s between two runs, up to {within} s within one");
}

/// Waits until nothing is left of what this query counts. Each step of that is an event of its own, because all together
/// take longer the slower the machine is.
async fn drained(app: &TestApp, left: &str) {
    let mut before = app.number(left).await;
    while before > 0 {
        let mut now = before;
        eventually("the backlog gets shorter", async || {
            now = app.number(left).await;
            now < before
        })
        .await;
        before = now;
    }
}

/// A pause between two runs would be as long as the period at least, on any machine.
#[tokio::test]
async fn a_worker_expires_a_backlog_and_returns_its_units_without_a_pause_between_two_runs() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(100_000).await;
    let orders = (RUNS * PASS_BATCHES_MAX) * STOCK_RETURNS_BATCH as usize + 100;
    app.execute(&format!(
        "SET LOCAL statement_timeout = '60s';
         INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_by)
             SELECT n, {coupon}, 'flash', n, now(), now() - interval '1 day' FROM generate_series(1, {orders}) AS n;
         UPDATE flash_sales SET sold = {orders} WHERE coupon_id = {coupon};
         -- Its units come back only once all orders are closed.
         INSERT INTO postponed (pass, item, error, next_try_at)
             VALUES ('stock_returns', {coupon}, 'not yet', now() + interval '1 hour')"
    ))
    .await;
    let _worker = Process::serve(&app, &["--roles", "worker"]);
    let late = "SELECT count(*) FROM orders WHERE status = 'unpaid'";
    drained(&app, late).await;
    let moments = "SELECT DISTINCT expired_at FROM orders";
    assert_no_pause(&app, moments, EXPIRY_PERIOD).await;

    app.execute("DELETE FROM postponed").await;
    let open = "SELECT count(*) FROM stock_returns WHERE done_at IS NULL";
    drained(&app, open).await;
    let moments = "SELECT DISTINCT done_at FROM stock_returns";
    assert_no_pause(&app, moments, STOCK_RETURN_PERIOD).await;
}
