//! The passes over the whole installation: each is started, and a run that fails is counted and logged under its name.

use flash_sale::worker;

use crate::support::lines::{Lines, number};
use crate::support::{PATIENCE, TestApp, eventually};

const PASSES: [&str; 14] = [
    "numbers",
    "reconcile",
    "stock_returns",
    "changes",
    "revisions",
    "warm_up",
    "archive",
    "expiry",
    "cancellations",
    "audit",
    "retention",
    "history",
    "order_counts",
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
        let failures = format!("flash_sale_pass_failures_total{{pass=\"{pass}\"}}");
        eventually(pass, async || number(&worker, &failures) >= 1.0).await;
        let said = format!("a pass failed; trying again pass=\"{pass}\"");
        assert!(lines.count(&said) >= 1, "{pass}");
    }
    assert!(worker.shutdown.stop(PATIENCE).await, "no pass runs on");
    assert!(lines.count("the number of lanes can't be read; trying again") >= 1);
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
    assert!(worker.shutdown.stop(PATIENCE).await);
    for pass in ["write", "recover", "tidy_up"] {
        let failures = format!("flash_sale_pass_failures_total{{pass=\"{pass}\"}}");
        assert!(number(&worker, &failures) < 1.0, "{pass}");
    }
}
