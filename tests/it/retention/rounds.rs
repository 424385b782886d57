//! `walk`, `show` and `pass`: rounds through the orders, and the numbers and lines that an operator sees of them.

use chrono::TimeDelta;
use flash_sale::base::limits::{HISTORY_BATCH, PASS_BATCHES_MAX, RETENTION_BATCH};
use flash_sale::kit::id;
use flash_sale::sale::retention::Forgotten;
use flash_sale::sale::retention::months::{self, Month};
use tokio::time::Instant;

use super::history::moved;
use crate::support::lines::{Lines, number};
use crate::support::{Bounded, TestApp, now};

/// So many old orders of a regular coupon, by their status. Returns the id of the first.
async fn old_orders(app: &TestApp, of_each: &[(usize, &str)]) -> i64 {
    let coupon = app.create_regular().await;
    let first = id::first_at(now() - TimeDelta::days(200));
    let mut next = first;
    for (orders, status) in of_each {
        app.execute(&format!(
            "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, pay_method, paid_at, redeemed_at,
                                 updated_at, pay_cents, currency)
             SELECT n, {coupon}, 'regular', n, now(), '{status}', 'balance', now(),
                    CASE '{status}' WHEN 'redeemed' THEN now() END, now() - interval '200 days', 1, 'CNY'
             FROM generate_series({next}::bigint, {next} + {orders} - 1) AS n"
        ))
        .await;
        next += i64::try_from(*orders).expect("a small number");
    }
    first
}

#[tokio::test]
async fn walk_looks_at_ten_pages_in_a_run_and_goes_on_behind_them_in_the_next() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let looked_at = PASS_BATCHES_MAX * HISTORY_BATCH as usize;
    let first = old_orders(&app, &[(looked_at - 1, "paid"), (1 + 3, "redeemed")]).await;
    let lines = Lines::heard();
    let words = "orders have moved into the history";
    assert_eq!((moved(&app.app).await, lines.count(words)), (1, 1), "the others are paid");
    assert_eq!((moved(&app.app).await, lines.count(words)), (3, 2), "those behind them");
    assert!(lines.with(words)[1].contains("orders=3"), "{:?}", lines.with(words));
    app.execute(&format!(
        "UPDATE orders SET status = 'redeemed', redeemed_at = now(), updated_at = now() - interval '200 days'
         WHERE id = {first}"
    ))
    .await;
    assert_eq!(moved(&app.app).await, 1, "it begins again at the front");
}

/// The letters are young, and none is deleted.
#[tokio::test]
async fn walk_looks_at_ten_pages_of_records_in_a_run_and_at_none_twice() {
    let app = TestApp::start().await;
    let pages = i64::try_from(PASS_BATCHES_MAX).expect("a small number");
    app.execute(&format!(
        "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, resolved_at)
         SELECT 0, n || '-1', '{{}}', 'undecodable', '', now() FROM generate_series(1, {pages} * {RETENTION_BATCH}) AS n"
    ))
    .await;
    app.count_statements("DELETE", "dead_letters").await;
    // All pages are full: the end is told by the next one, which is empty.
    for expected in [pages, 1, pages] {
        let forgotten = app.app.retention.pass().bounded().await.expect("Postgres answers");
        assert_eq!((forgotten, app.statements().await), (Forgotten::default(), expected));
    }
}

/// Of three orders one is over for more than a day; another one has a note that is due.
#[tokio::test]
async fn a_new_history_takes_orders_that_have_been_over_for_a_day_where_that_is_the_time() {
    let app = TestApp::configured(&["--orders-days", "1"]).await;
    app.expect_disagreements();
    let first = old_orders(&app, &[(3, "redeemed")]).await;
    app.execute(&format!(
        "UPDATE orders SET updated_at = now() - CASE id WHEN {first} THEN interval '25 hours' ELSE '23 hours' END;
         INSERT INTO postponed (pass, item, error, next_try_at) VALUES ('history', {first} + 2, 'x', now())"
    ))
    .await;
    assert_eq!(moved(&app.app).await, 1);
    let left = app.numbers("SELECT id FROM orders ORDER BY id").await;
    assert_eq!((left, app.postponed().await.len()), (vec![first + 1, first + 2], 0));
}

#[tokio::test]
async fn move_what_can_be_ends_at_a_failure_that_concerns_all_orders() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let first = old_orders(&app, &[(3, "redeemed")]).await;
    app.refuse("DELETE", "orders", &format!("OLD.id = {first}"), "57014").await;
    let failed = app.app.history.pass().bounded().await;
    assert!(failed.is_err(), "{failed:?}");
    let rows = "SELECT count(*) FROM orders";
    assert_eq!((app.number(rows).await, app.postponed().await.len()), (3, 0));
    app.accept("orders").await;
    assert_eq!(moved(&app.app).await, 3);
}

#[tokio::test]
async fn walk_shows_the_time_since_the_last_whole_round_began() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let waiting = || number(&app.app, "flash_sale_history_waiting_seconds");
    let many = PASS_BATCHES_MAX * HISTORY_BATCH as usize;
    // A round takes two runs.
    old_orders(&app, &[(many, "paid")]).await;
    assert_eq!(moved(&app.app).await, 0);
    let before_the_second_began = Instant::now();
    for _ in 0..3 {
        assert_eq!(moved(&app.app).await, 0);
    }
    let shown = waiting();
    let bound = before_the_second_began.elapsed().as_secs_f64();
    assert!(shown > 0.0 && shown <= bound, "{shown} of {bound}");
    // In the middle of a round the time goes on.
    assert_eq!(moved(&app.app).await, 0);
    assert!(waiting() > shown);
}

#[tokio::test]
async fn show_has_the_months_and_the_oldest_one_and_no_wait_where_orders_stay() {
    let app = TestApp::configured(&["--orders-days", "0", "--history-months", "4"]).await;
    let this = Month::of(now());
    let lines = Lines::heard();
    for back in [2, 4, 5, 6] {
        months::make(&app.app.stores.pool, this.back(back)).await.expect("Postgres answers");
    }
    assert_eq!(moved(&app.app).await, 0);
    let found = months::all(&app.app.stores.pool).await.expect("Postgres answers");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [this.back(4), this.back(2)]);
    let dropped = lines.with("a month of the history is dropped");
    assert_eq!(dropped.len(), 2, "{dropped:?}");
    for (line, back) in dropped.iter().zip([6, 5]) {
        assert!(line.contains(&format!("begins={}", this.back(back).begins())), "{line}");
    }
    let shown = ["months", "oldest_month_timestamp_seconds", "waiting_seconds"]
        .map(|name| number(&app.app, &format!("flash_sale_history_{name}")));
    let oldest = this.back(4).begins().timestamp();
    assert_eq!(shown, [2.0, oldest as f64, 0.0]);
}

#[tokio::test]
async fn pass_forgets_a_batch_of_comparisons_and_recoveries_and_says_so() {
    let app = TestApp::configured(&["--comparisons-days", "3", "--recoveries-days", "3"]).await;
    app.expect_disagreements();
    app.execute(&format!(
        "INSERT INTO reconcile_runs (asked_by, started_at)
             SELECT 'period', now() - interval '4 days' FROM generate_series(1, {RETENTION_BATCH} + 1);
         INSERT INTO reconcile_runs (asked_by, started_at) VALUES ('period', now() - interval '2 days');
         INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at)
             SELECT 0, n, 'x', now() - interval '4 days', now() FROM generate_series(1, {RETENTION_BATCH} + 1) AS n;
         INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at)
             SELECT 0, {RETENTION_BATCH} + 1 + n, 'x', now() - interval '2 days', now() FROM generate_series(1, 2) AS n"
    ))
    .await;
    let lines = Lines::heard();
    let batch = u64::from(RETENTION_BATCH);
    for (deleted, said) in [(batch, 1), (1, 2), (0, 2)] {
        let forgotten = app.app.retention.pass().bounded().await.expect("Postgres answers");
        let expected =
            Forgotten { comparisons: deleted, recoveries: deleted, ..Forgotten::default() };
        assert_eq!(forgotten, expected);
        assert_eq!(lines.count("old records were deleted"), said);
    }
    let left = "SELECT count(*) FROM reconcile_runs";
    assert_eq!(
        (app.number(left).await, app.number("SELECT count(*) FROM recoveries").await),
        (1, 2)
    );
    app.execute("DELETE FROM recoveries; DELETE FROM reconcile_runs").await;
}
