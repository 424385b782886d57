//! The jobs over the whole installation: each is started, and a run that fails is counted and logged under its name.

use std::time::Instant;

use flash_sale::app::App;
use flash_sale::base::limits;
use flash_sale::worker;

use crate::support::lines::{Lines, number};
use crate::support::{TestApp, eventually, lane, patience, tries};

const JOBS: [&str; 9] = [
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
async fn each_job_starts_at_once_and_every_failure_is_counted_under_its_name() {
    let app = TestApp::start().await;
    let worker = app.another_instance().await;
    // No job can do without Postgres.
    worker.stores.pool.close().await;
    let lines = Lines::heard();
    worker::start(&worker, &app.config);
    for job in JOBS {
        eventually(job, async || failures(&worker, job) >= 1.0).await;
        let said = format!("a job failed; trying again job=\"{job}\"");
        assert!(lines.count(&said) >= 1, "{job}");
    }
    assert!(worker.shutdown.stop(patience()).await, "no job runs on");
}

fn failures(app: &App, job: &str) -> f64 {
    number(app, &format!("flash_sale_job_failures_total{{name=\"{job}\"}}"))
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
    for job in ["write", "tidy_up"] {
        assert!(failures(&worker, job) < 1.0, "{job}");
    }
}

/// The pauses between two checks of the lanes, and between two runs of jobs, end with the service.
#[tokio::test]
async fn a_service_that_has_just_started_stops_at_once() {
    let app = TestApp::start().await;
    for _ in tries() {
        let worker = app.another_instance().await;
        worker::start(&worker, &app.config);
        let log = worker.stores.keys.log(lane());
        let has_log =
            async || worker.stores.fleet.first().query(redis::cmd("EXISTS").arg(&log)).await;
        eventually("the lane runs", async || matches!(has_log().await, Ok(true))).await;
        let began = Instant::now();
        assert!(worker.shutdown.stop(patience()).await);
        if began.elapsed() < limits::EXPIRY_PERIOD / 2 {
            break;
        }
    }
}
