//! Running counts of orders: batches of a pass, and the audit's pauses, time and words.

use std::time::Duration;

use flash_sale::base::limits;
use flash_sale::sale::order::model::OrderStatus;

use crate::support::lines::{Lines, number};
use crate::support::{Bounded, TestApp, bounded, later, sale};

async fn audit(app: &TestApp) -> Option<i64> {
    let audited = app.app.order_counts.audit_next().bounded().await.expect("Postgres answers");
    audited.map(|coupon| coupon.sequence())
}

/// Seconds from this moment of Postgres until the next count may begin.
async fn rest(app: &TestApp, from: &str) -> i64 {
    let rest = format!(
        "SELECT floor(extract(epoch FROM next_at - '{from}'::timestamptz))::bigint FROM order_count_audit"
    );
    app.number(&rest).await
}

/// One sale with a live order, whose counts are added up; no audit is due.
async fn counted() -> TestApp {
    let app = TestApp::with_sales(1).await;
    app.execute("UPDATE order_count_audit SET next_at = 'infinity'").await;
    app.write_rows(&[(1, 1, "flash", 1, "unpaid")]).await;
    app.app.order_counts.pass().bounded().await.expect("Postgres answers");
    app.execute("UPDATE order_count_audit SET next_at = now(), after_coupon_id = 0, corrected = 5")
        .await;
    app
}

/// A pause after each coupon, and a longer rest after the last one.
#[tokio::test]
async fn the_audit_rests_after_a_coupon_and_for_longer_after_a_round() {
    let app = counted().await;
    let (pause, rest_of_round) = (limits::ORDER_AUDIT_PAUSE, limits::ORDER_AUDIT_REST);
    for (expected, least, below) in
        [(Some(1), pause, rest_of_round), (None, rest_of_round, rest_of_round * 2)]
    {
        app.execute("UPDATE order_count_audit SET next_at = now()").await;
        let from = app.texts("SELECT clock_timestamp()::text").await.remove(0);
        assert_eq!(audit(&app).await, expected);
        let rest = rest(&app, &from).await;
        let [least, below] =
            [least, below].map(|time| i64::try_from(time.as_secs()).expect("a small number"));
        assert!((least..below).contains(&rest), "{rest} s after {expected:?}");
        assert_eq!(app.number("SELECT corrected FROM order_count_audit").await, 5);
    }
}

/// The count waits for a lock for an hour, by the clock of this process.
#[tokio::test]
async fn the_audit_pauses_for_twenty_times_as_long_as_the_count_has_taken() {
    let app = counted().await;
    let other = app.holding("LOCK TABLE order_count_changes IN EXCLUSIVE MODE").await;
    let from = app.texts("SELECT clock_timestamp()::text").await.remove(0);
    let ending = async {
        app.a_session_waits_for_a_row().await;
        later(Duration::from_hours(1)).await;
        other.rollback().await.expect("Postgres answers");
    };
    let both = async { tokio::join!(audit(&app), ending) };
    let (audited, ()) = bounded("the end of the count", both).await;
    let rest = rest(&app, &from).await;
    // Twenty-one hours would be three minutes in which Postgres doesn't answer.
    assert!(audited == Some(1) && (20 * 3_600..21 * 3_600).contains(&rest), "{rest} s");
}

#[tokio::test]
async fn a_pass_audits_the_next_coupon_if_that_is_due_and_changes_no_time_otherwise() {
    let app = counted().await;
    let after = "SELECT after_coupon_id FROM order_count_audit";
    app.execute("UPDATE order_count_audit SET next_at = 'infinity'").await;
    app.app.order_counts.pass().bounded().await.expect("Postgres answers");
    let waits = "SELECT count(*) FROM order_count_audit WHERE next_at = 'infinity'";
    assert_eq!((app.number(after).await, app.number(waits).await), (0, 1));
    app.execute("UPDATE order_count_audit SET next_at = now()").await;
    app.app.order_counts.pass().bounded().await.expect("Postgres answers");
    assert_eq!(app.number(after).await, sale(1).get());
}

/// All statuses are wrong, each by another number; Postgres finds them in the order of their hashes.
#[tokio::test]
async fn the_audit_tells_what_it_corrects_in_log_metric_and_history() {
    let app = counted().await;
    app.execute(
        "DO $$ BEGIN
             EXECUTE format('ALTER DATABASE %I SET enable_sort TO off', current_database());
         END $$",
    )
    .await;
    // Its connections begin with that setting.
    let process = app.another_instance().await;
    let audit = async || {
        let audited = process.order_counts.audit_next().bounded().await.expect("Postgres answers");
        audited.map(|coupon| coupon.sequence())
    };
    let corrections = || number(&process, "flash_sale_order_counts_corrected_total");
    let alarm = "ALARM: the running counts of a coupon's orders were wrong, and are corrected";
    let lines = Lines::heard();
    assert_eq!(audit().await, Some(1));
    assert_eq!((corrections(), lines.count(alarm)), (0.0, 0), "they are right");

    app.execute("UPDATE order_count_audit SET next_at = now(), after_coupon_id = 0").await;
    let mut names = OrderStatus::ALL.map(OrderStatus::as_str);
    for (wrong, status) in (1..).zip(names) {
        app.execute(&format!(
            "INSERT INTO order_counts (coupon_id, status, orders, digest) VALUES (1024, '{status}', {wrong}, 0)
             ON CONFLICT ON CONSTRAINT order_counts_once DO UPDATE SET orders = order_counts.orders + {wrong}"
        ))
        .await;
    }
    assert_eq!(audit().await, Some(1));
    assert_eq!((corrections(), lines.count(alarm)), (1.0, 1));
    assert_eq!(app.number("SELECT corrected FROM order_count_audit").await, 6);
    names.sort_unstable();
    let found = "SELECT status FROM order_count_changes ORDER BY id";
    assert_ne!(app.texts(found).await, names, "they have yet to be sorted");
    let at = |name| OrderStatus::ALL.iter().position(|status| status.as_str() == name);
    let words = names.map(|name| format!("{name}: -{}", at(name).expect("a status") + 1));
    let error = "SELECT error FROM postponed_settled WHERE pass = 'order_counts' AND item = 1024";
    let begin = "the running counts of orders were wrong, and are corrected: ";
    assert_eq!(app.texts(error).await, [format!("{begin}{}", words.join(", "))]);
    let told = lines.with(alarm);
    assert!(told[0].contains(&format!("coupon={}", sale(1))), "{told:?}");
}

/// A count of all orders of a coupon may take longer than other statements.
#[tokio::test]
async fn the_audit_has_time_to_count() {
    let app = counted().await;
    app.note_timeout_of("INSERT", "order_count_changes").await;
    app.execute("UPDATE order_counts SET orders = 7").await;
    assert_eq!(audit(&app).await, Some(1));
    assert_eq!(app.timeout_noted().await, limits::ORDER_AUDIT_TIMEOUT);
}

#[tokio::test]
async fn add_up_ends_with_the_first_batch_of_changes_that_is_not_full() {
    let app = TestApp::with_sales(1).await;
    app.execute("UPDATE order_count_audit SET next_at = 'infinity'").await;
    app.count_statements("DELETE", "order_count_changes").await;
    let batch = limits::ORDER_COUNTS_BATCH;
    for (changes, batches) in [(0, 1), (1, 1), (batch - 1, 1), (batch, 2), (batch + 1, 2)] {
        app.execute(&format!(
            "INSERT INTO order_count_changes (coupon_id, status, orders, digest)
             SELECT 1024, 'unpaid', 1, 1 FROM generate_series(1, {changes}) AS n"
        ))
        .await;
        app.app.order_counts.pass().bounded().await.expect("Postgres answers");
        assert_eq!(app.statements().await, batches, "{changes} changes");
        assert_eq!(app.number("SELECT count(*) FROM order_count_changes").await, 0);
    }
    assert_eq!(app.number("SELECT orders FROM order_counts").await, 3 * batch + 1);
}
