//! Jobs that cancel the unpaid orders of a coupon: which jobs are listed, and which orders each cancels.

use flash_sale::base::limits;
use flash_sale::sale::audit::Actor;
use flash_sale::sale::ids::{CouponId, JobId};
use flash_sale::sale::operations::matter::MatterKind;
use flash_sale::sale::order::cancellations::Asked;

use crate::support::{Bounded, TestApp, sale};

fn job(id: i64) -> JobId {
    JobId::new(id).expect("a positive number")
}

/// Jobs 1 and 2 of sales 1 and 2 go on, and job 3 of sale 1 has ended. All were asked for a minute after the beginning of
/// 2024.
async fn jobs() -> TestApp {
    let app = TestApp::with_sales(4).await;
    app.execute(
        "INSERT INTO jobs (coupon_id, key, reason, created_at, finished_at)
         SELECT coupon << 10, 'key ' || n, 'reason ' || n, '2024-01-01T00:01:00Z', CASE n WHEN 3 THEN now() END
         FROM (VALUES (1, 1::bigint), (2, 2), (3, 1)) AS job (n, coupon) ORDER BY n",
    )
    .await;
    // Claimed in the seconds of their ids: 60 at the moment of the jobs, and 61 later.
    app.write_rows(&[
        (11, 1, "flash", 11, "unpaid"),
        (12, 1, "flash", 12, "unpaid"),
        (13, 1, "flash", 13, "paid"),
        (60, 1, "flash", 60, "unpaid"),
        (61, 1, "flash", 61, "unpaid"),
        (21, 2, "flash", 21, "unpaid"),
        (31, 3, "flash", 31, "unpaid"),
    ])
    .await;
    app.execute("UPDATE flash_sales SET sold = 50").await;
    app
}

#[tokio::test]
async fn the_list_of_jobs_tells_the_orders_that_wait_for_each() {
    let app = jobs().await;
    let cancellations = &app.app.cancellations;
    for (coupon, before, limit, expected) in [
        (None, None, 9, vec![(3, 1, 0), (2, 2, 1), (1, 1, 2)]),
        (None, None, 2, vec![(3, 1, 0), (2, 2, 1)]),
        (None, Some(3), 9, vec![(2, 2, 1), (1, 1, 2)]),
        (None, Some(3), 1, vec![(2, 2, 1)]),
        (Some(1), None, 9, vec![(3, 1, 0), (1, 1, 2)]),
        (Some(1), Some(3), 9, vec![(1, 1, 2)]),
        (Some(3), None, 9, vec![]),
    ] {
        let listed = cancellations.list(coupon.map(sale), before.map(job), limit).await;
        let listed: Vec<_> = listed
            .expect("Postgres answers")
            .iter()
            .map(|job| (job.job_id.get(), job.coupon_id.sequence(), job.left))
            .collect();
        assert_eq!(listed, expected, "coupon {coupon:?} before {before:?}, {limit}");
    }
    for number in [1, 2, 3] {
        let found = cancellations.get(job(number)).await.expect("Postgres answers");
        let found = found.map(|found| (found.job_id, found.key, found.finished_at.is_some()));
        assert_eq!(found, Some((job(number), format!("key {number}"), number == 3)), "find");
    }
    assert_eq!(cancellations.get(job(4)).await.expect("Postgres answers"), None);
}

#[tokio::test]
async fn the_orders_that_wait_for_a_job_are_counted_up_to_a_bound() {
    let app = jobs().await;
    let bound = limits::JOB_ORDERS_COUNTED_MAX;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
         SELECT 1000 + n, 1024, 'flash', 1000 + n, '2024-01-01T00:00:30Z' FROM generate_series(1, {bound}) AS n"
    ))
    .await;
    let found = app.app.cancellations.get(job(1)).await.expect("Postgres answers");
    assert_eq!(found.map(|found| found.left), Some(bound));
}

#[tokio::test]
async fn a_job_begins_once_under_a_key_of_its_coupon() {
    let app = jobs().await;
    let ask = async |coupon: CouponId, key: &str, reason: &str| {
        let asked = app.app.cancellations.ask(coupon, key, reason, &Actor::command_line()).await;
        match asked.expect("both stores answer") {
            Asked::Job(job) => job.job_id.get(),
            Asked::KeyReused => 0,
            Asked::NoCoupon => -1,
        }
    };
    assert_eq!(ask(sale(1), "key 1", "reason 1").await, 1);
    assert_eq!(ask(sale(1), "key 3", "reason 3").await, 3);
    assert_eq!(ask(sale(1), "key 1", "another").await, 0);
    assert_eq!(ask(sale(9), "key 1", "reason 1").await, -1);
    let new = ask(sale(2), "key 1", "reason 1").await;
    assert!(new > 3, "{new}");
    let jobs = app.numbers("SELECT coupon_id >> 10 FROM jobs ORDER BY id").await;
    assert_eq!(jobs, [1, 2, 1, 2]);
}

async fn with_status(app: &TestApp, status: &str) -> Vec<i64> {
    app.numbers(&format!("SELECT id FROM orders WHERE status = '{status}' ORDER BY id")).await
}

/// Number of the job, orders that it has cancelled, and whether it has ended.
async fn states(app: &TestApp) -> Vec<String> {
    let states = "SELECT concat_ws(' ', id, cancelled, finished_at <= now()) FROM jobs ORDER BY id";
    app.texts(states).await
}

#[tokio::test]
async fn jobs_that_go_on_cancel_the_orders_of_their_coupons_that_were_claimed_before() {
    let app = jobs().await;
    app.execute(
        "INSERT INTO jobs (coupon_id, key, reason, created_at, finished_at)
         VALUES (3 << 10, 'ended', '', '2024-01-01T00:01:00Z', now())",
    )
    .await;
    app.let_rows_age("jobs").await;
    assert_eq!(app.cancel_for_jobs().await, 3);
    assert_eq!(with_status(&app, "cancelled").await, [11, 12, 21]);
    assert_eq!(with_status(&app, "unpaid").await, [31, 60, 61]);
    let in_turn =
        "SELECT coupon_id >> 10 FROM orders WHERE status = 'cancelled' ORDER BY cancelled_at";
    assert_eq!(app.numbers(in_turn).await, [1, 1, 2], "the oldest job first");
    assert_eq!(states(&app).await, ["1 2 t", "2 1 t", "3 0 t", "4 0 t"]);
    assert_eq!(
        app.touched("jobs", "id").await,
        [1, 2],
        "those that have ended before keep their time"
    );
    let times = "SELECT count(*) FROM orders WHERE cancelled_at <= now() AND expired_at IS NULL";
    assert_eq!(app.number(times).await, 3);
    assert_eq!(app.cancel_for_jobs().await, 0);
}

/// Order 11 waits until it is due; 12 is postponed by another pass.
#[tokio::test]
async fn a_job_leaves_postponed_orders_out_and_goes_on_until_they_are_due() {
    let app = jobs().await;
    app.execute(
        "INSERT INTO postponed (pass, item, error, next_try_at)
         VALUES ('cancellations', 11, 'x', now() + interval '30 min'), ('expiry', 12, 'x', now() + interval '30 min')",
    )
    .await;
    assert_eq!(app.cancel_for_jobs().await, 2);
    assert_eq!(with_status(&app, "cancelled").await, [12, 21]);
    assert_eq!(states(&app).await, ["1 1", "2 1 t", "3 0 t"]);
    app.let_postponed_be_due().await;
    assert_eq!(app.cancel_for_jobs().await, 1);
    assert_eq!(states(&app).await, ["1 2 t", "2 1 t", "3 0 t"]);
}

/// Postponed orders that are due: of 11 two jobs go on, 13 is paid, 60 and 61 were claimed later, and the job of 31 has
/// ended.
#[tokio::test]
async fn a_due_order_is_cancelled_for_the_first_job_that_goes_on() {
    let app = jobs().await;
    app.execute(
        "INSERT INTO jobs (coupon_id, key, reason, created_at, finished_at)
         VALUES (1024, 'second', '', '2024-01-01T00:01:00Z', NULL), (3 << 10, 'ended', '', '2024-01-01T00:01:00Z', now());
         INSERT INTO postponed (pass, item, error, next_try_at)
         SELECT 'cancellations', id, 'x', now() FROM orders WHERE id IN (11, 12, 13, 60, 61, 31)",
    )
    .await;
    assert_eq!(app.cancel_for_jobs().await, 3);
    assert_eq!(with_status(&app, "cancelled").await, [11, 12, 21]);
    assert_eq!(with_status(&app, "paid").await, [13]);
    assert_eq!(states(&app).await, ["1 2 t", "2 1 t", "3 0 t", "4 0 t", "5 0 t"]);
    assert_eq!(app.postponed().await, [""; 0]);
}

#[tokio::test]
async fn a_job_cancels_the_first_claims_first() {
    let app = TestApp::with_sales(1).await;
    let batches = i64::try_from(limits::PASS_BATCHES_MAX).expect("a small number");
    let orders = batches * limits::CANCELLATIONS_BATCH;
    // The first order was claimed last.
    app.execute(&format!(
        "UPDATE flash_sales SET total = 10000, sold = 10000;
         INSERT INTO jobs (coupon_id, key, reason) VALUES (1024, 'key', '');
         INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
         SELECT n, 1024, 'flash', n, now() - interval '1 day' - n * interval '1 s' FROM generate_series(1, {orders} + 1) AS n"
    ))
    .await;
    assert_eq!(
        i64::try_from(app.cancel_for_jobs().await).expect("some"),
        orders,
        "a pass has a bound"
    );
    assert_eq!(with_status(&app, "unpaid").await, [1]);
    assert_eq!(states(&app).await, [format!("1 {orders}")]);
}

/// An order is paid while the job waits for it: the first one wins.
#[tokio::test]
async fn close_these_waits_for_locked_orders_in_the_order_of_their_ids() {
    let app = jobs().await;
    let change = "UPDATE orders SET status = 'paid', paid_at = now(), pay_method = 'balance', updated_at = now() WHERE id = 11";
    let other = app.holding(change).await;
    let paying = async {
        app.a_session_waits_for_a_row().await;
        let free = "SELECT id FROM orders WHERE id IN (11, 12) ORDER BY id FOR UPDATE SKIP LOCKED";
        let free = app.numbers(free).await;
        other.commit().await.expect("Postgres answers");
        free
    };
    let (cancelled, free) = tokio::join!(app.cancel_for_jobs(), paying);
    assert_eq!(free, [12], "it waits for the first, and has not come to the second");
    assert_eq!(cancelled, 2);
    assert_eq!(with_status(&app, "paid").await, [11, 13]);
    assert_eq!(with_status(&app, "cancelled").await, [12, 21]);
    assert_eq!(states(&app).await, ["1 1 t", "2 1 t", "3 0 t"]);
}

/// The buyer cancels an order while the job waits for it: it is closed, and counted, once.
#[tokio::test]
async fn close_these_leaves_an_order_that_its_buyer_has_cancelled_meanwhile() {
    let app = jobs().await;
    let change = "UPDATE orders SET status = 'cancelled', cancelled_at = now(), updated_at = now() WHERE id = 11";
    let other = app.holding(change).await;
    let ending = async {
        app.a_session_waits_for_a_row().await;
        other.commit().await.expect("Postgres answers");
    };
    let (cancelled, ()) = tokio::join!(app.cancel_for_jobs(), ending);
    assert_eq!(cancelled, 2);
    assert_eq!(states(&app).await, ["1 1 t", "2 1 t", "3 0 t"]);
    assert_eq!(app.numbers("SELECT order_id FROM stock_returns ORDER BY 1").await, [12, 21]);
}

/// Another process is faster.
#[tokio::test]
async fn finish_leaves_a_job_that_another_process_has_ended() {
    let app = TestApp::with_sales(1).await;
    app.execute("INSERT INTO jobs (coupon_id, key, reason) VALUES (1024, 'key', '')").await;
    let ended = "UPDATE jobs SET finished_at = '2024-01-01T00:00:00Z', updated_at = now()";
    let other = app.holding(ended).await;
    let ending = async {
        app.a_session_waits_for_a_row().await;
        other.commit().await.expect("Postgres answers");
    };
    let (cancelled, ()) = tokio::join!(app.cancel_for_jobs(), ending);
    assert_eq!(cancelled, 0);
    let kept = "SELECT count(*) FROM jobs WHERE finished_at = '2024-01-01T00:00:00Z'";
    assert_eq!(app.number(kept).await, 1, "it keeps its time");
}

#[tokio::test]
async fn jobs_that_go_on_for_long_are_overdue_and_all_are_counted() {
    let app = TestApp::with_sales(1).await;
    app.app.numbers.pass().bounded().await.expect("both stores answer");
    assert_eq!(app.metric("flash_sale_jobs_oldest_seconds").await, 0.0);
    app.execute(
        "INSERT INTO jobs (coupon_id, key, reason, created_at, finished_at)
         SELECT 1024, n, '', now() - minutes * interval '1 min', CASE WHEN has_ended THEN now() END
         FROM (VALUES (1, 120, true), (2, 60, false), (3, 11, false), (4, 5, false), (5, 15, false))
              AS job (n, minutes, has_ended) ORDER BY n",
    )
    .await;
    let overdue = async |limit| {
        let matters = app.app.operations.list(Some(MatterKind::Job), None, limit).await;
        let matters = matters.expect("Postgres answers");
        let ids: Vec<String> = matters.iter().map(|matter| matter.id.clone()).collect();
        (ids.join(" "), matters.last().map(|matter| matter.position))
    };
    let (ids, _) = overdue(9).await;
    assert_eq!(ids, "5 3 2");
    let (ids, behind) = overdue(2).await;
    assert_eq!(ids, "5 3");
    let rest = app.app.operations.list(Some(MatterKind::Job), behind, 9).await;
    let rest: Vec<String> =
        rest.expect("Postgres answers").into_iter().map(|matter| matter.id).collect();
    assert_eq!(rest, ["2"]);
    app.app.numbers.pass().bounded().await.expect("both stores answer");
    assert_eq!(app.metric("flash_sale_jobs_open").await, 4.0);
    let oldest = app.metric("flash_sale_jobs_oldest_seconds").await;
    assert!((3_600.0..7_200.0).contains(&oldest), "{oldest}");
}

/// An old job in front of a page of jobs that go on, and another one behind it.
#[tokio::test]
async fn forget_deletes_old_jobs_that_have_ended_page_by_page() {
    let app = TestApp::with_sales(1).await;
    app.execute(&format!(
        "INSERT INTO jobs (coupon_id, key, reason, created_at, finished_at)
         SELECT 1024, n, '', now() - interval '10 years', CASE WHEN n IN (1, {last}) THEN now() - interval '9 years' END
         FROM generate_series(1, {last}) AS n ORDER BY n",
        last = limits::RETENTION_BATCH + 2
    ))
    .await;
    let forgotten = app.app.retention.pass().bounded().await.expect("Postgres answers");
    assert_eq!(forgotten.jobs, 2);
    assert_eq!(
        app.number("SELECT count(*) FROM jobs WHERE finished_at IS NULL").await,
        i64::from(limits::RETENTION_BATCH)
    );
}
