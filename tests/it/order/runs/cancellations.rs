//! Jobs that cancel orders: failures, jobs that only wait, and the end of a job.

use flash_sale::base::limits;
use flash_sale::sale::audit::Actor;
use flash_sale::sale::order::cancellations::Asked;

use crate::support::lines::{Lines, rows_returned};
use crate::support::{Bounded, TestApp, sale};

/// Two sales with two unpaid orders each, and a job of each, all of the beginning of 2024.
pub(super) async fn two_jobs() -> TestApp {
    let app = TestApp::with_sales(2).await;
    app.write_rows(&[
        (11, 1, "flash", 11, "unpaid"),
        (12, 1, "flash", 12, "unpaid"),
        (21, 2, "flash", 21, "unpaid"),
        (22, 2, "flash", 22, "unpaid"),
    ])
    .await;
    app.execute(
        "UPDATE flash_sales SET sold = 50;
         INSERT INTO jobs (coupon_id, key, reason, created_at)
         VALUES (1024, 'a', '', '2024-01-01T00:01:00Z'), (2048, 'b', '', '2024-01-01T00:01:00Z')",
    )
    .await;
    app
}

pub(super) async fn cancelled(app: &TestApp) -> Vec<i64> {
    app.numbers("SELECT id FROM orders WHERE status = 'cancelled' ORDER BY id").await
}

/// Jobs that go on.
pub(super) async fn open(app: &TestApp) -> Vec<i64> {
    app.numbers("SELECT id FROM jobs WHERE finished_at IS NULL ORDER BY id").await
}

/// Postgres breaks off one job, by an error that is not about its rows.
#[tokio::test]
async fn cancellations_go_on_with_other_jobs_and_the_pass_says_that_one_has_failed() {
    let app = two_jobs().await;
    app.refuse("UPDATE", "orders", "OLD.coupon_id = 1024", "57014").await;
    for _ in 0..2 {
        let failed = app.app.cancellations.pass().bounded().await;
        assert!(failed.is_err(), "{failed:?}");
        assert_eq!((cancelled(&app).await, open(&app).await), (vec![21, 22], vec![1]));
        assert_eq!(app.postponed().await, [""; 0]);
    }
    app.accept("orders").await;
    assert_eq!((app.cancel_for_jobs().await, open(&app).await), (2, vec![]));
}

/// An order that is postponed until later keeps its job open; another one, which is due, has been paid meanwhile.
#[tokio::test]
async fn a_job_that_only_waits_is_not_written() {
    let app = two_jobs().await;
    app.execute(
        "UPDATE orders SET status = 'paid', paid_at = now(), pay_method = 'balance' WHERE id = 12;
         INSERT INTO postponed (pass, item, error, next_try_at)
         VALUES ('cancellations', 11, 'x', now() + interval '30 min'), ('cancellations', 12, 'x', now() - interval '1 s')",
    )
    .await;
    assert_eq!((app.cancel_for_jobs().await, open(&app).await), (2, vec![1]));
    app.let_rows_age("jobs").await;
    app.execute(
        "INSERT INTO postponed (pass, item, error, next_try_at) VALUES ('cancellations', 12, 'x', now() - interval '1 s')",
    )
    .await;
    assert_eq!((app.cancel_for_jobs().await, open(&app).await), (0, vec![1]));
    assert_eq!(app.touched("jobs", "id").await, [0; 0]);
    assert_eq!(app.postponed().await, ["cancellations 11 1"], "the paid one is settled");
    app.let_postponed_be_due().await;
    assert_eq!((app.cancel_for_jobs().await, open(&app).await), (1, vec![]));
    assert_eq!(app.touched("jobs", "id").await, [1]);
}

#[tokio::test]
async fn cancellations_read_all_open_jobs_page_by_page() {
    let app = TestApp::with_sales(1).await;
    let jobs = limits::PASS_JOBS_MAX + 1;
    app.execute(&format!(
        "INSERT INTO jobs (coupon_id, key, reason) SELECT 1024, n, '' FROM generate_series(1, {jobs}) AS n"
    ))
    .await;
    let lines = Lines::down_to(tracing::Level::DEBUG);
    assert_eq!((app.cancel_for_jobs().await, open(&app).await), (0, vec![]));
    let pages = rows_returned(&lines, "FROM jobs WHERE finished_at IS NULL AND id > $1");
    assert_eq!(pages, [u64::try_from(limits::PASS_JOBS_MAX).expect("a few"), 1, 0]);
}

/// A request is entered in the book of changes when it begins a job, and is answered by its reason.
#[tokio::test]
async fn cancellations_are_asked_for_once_and_entered_in_the_book() {
    let app = TestApp::with_sales(2).await;
    let ask = async |number, key: &str, reason: &str| {
        let by = Actor::command_line();
        let asked = app.app.cancellations.ask(sale(number), key, reason, &by).await;
        match asked.expect("both stores answer") {
            Asked::Job(job) => Some((job.coupon_id, job.key, job.reason)),
            Asked::KeyReused | Asked::NoCoupon => None,
        }
    };
    let job =
        |number, key: &str, reason: &str| Some((sale(number), key.to_owned(), reason.to_owned()));
    for (number, key, reason, is_answered) in [
        (1, "a", "x", true),
        (1, "a", "x", true),
        (1, "a", "y", false),
        (1, "b", "y", true),
        (2, "a", "y", true),
        (3, "a", "x", false),
    ] {
        let expected = job(number, key, reason).filter(|_| is_answered);
        assert_eq!(ask(number, key, reason).await, expected, "{number} {key} {reason}");
    }
    let book = "SELECT concat_ws(' ', subject_id >> 10, after ->> 'key', after ->> 'reason',
                                 (after ->> 'job_id')::bigint IN (SELECT id FROM jobs)) FROM audit ORDER BY id";
    assert_eq!(app.texts(book).await, ["1 a x t", "1 b y t", "2 a y t"]);
}

/// A claim waits in the log that is older than the second job alone.
#[tokio::test]
async fn finish_ends_one_job_and_not_another_one_that_waits_for_the_log() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(9).await;
    app.execute(&format!(
        "INSERT INTO jobs (coupon_id, key, reason, created_at) VALUES ({coupon}, 'a', '', now() - interval '1 hour')"
    ))
    .await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    app.execute(&format!("INSERT INTO jobs (coupon_id, key, reason) VALUES ({coupon}, 'b', '')"))
        .await;
    assert_eq!((app.cancel_for_jobs().await, open(&app).await), (0, vec![2]));
    assert_eq!(app.write_orders().await.inserted, 1);
    assert_eq!((app.cancel_for_jobs().await, open(&app).await), (1, vec![]));
}

/// None of the old jobs has ended.
#[tokio::test]
async fn forget_looks_at_each_job_once_and_ends_at_a_page_of_young_ones() {
    let app = TestApp::with_sales(1).await;
    app.count_statements("DELETE", "jobs").await;
    let page = limits::RETENTION_BATCH;
    for (age, jobs, pages) in
        [("10 years", 3 * page - 1, 3), ("10 years", page, 2), ("1 s", page, 1)]
    {
        app.execute(&format!(
            "TRUNCATE jobs;
             INSERT INTO jobs (coupon_id, key, reason, created_at)
             SELECT 1024, n, '', now() - interval '{age}' FROM generate_series(1, {jobs}) AS n"
        ))
        .await;
        assert_eq!(app.app.retention.pass().bounded().await.expect("Postgres answers").jobs, 0);
        assert_eq!(app.statements().await, pages, "{jobs} jobs of {age} ago");
    }
}
