//! Passes that put nothing aside: whatever Postgres says, a run fails as a whole, and the next one does the work. And
//! the list of all passes, each with the place where its writes are refused.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use flash_sale::sale::audit::Actor;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::pass::Pass;
use flash_sale::sale::reconcile::pass::Asked;

use super::passes::WRITES;
use crate::support::{Bounded, TestApp, bounded};

/// Two codes about data, which say nothing about an item here, and two others.
const STATES: [&str; 4] = ["22003", "23514", "40001", "57014"];

/// The pass, the refused write, the statement that makes work for it, and a number that is 1 while that is undone.
type Record = (Pass, &'static str, &'static str, &'static str, &'static str);

/// `{coupon}` is a sale with a cancelled order 1 of user 1. Its age is beyond each limit of retention.
const RECORDS: [Record; 20] = [
    (
        Pass::Retention,
        "DELETE",
        "payments",
        "INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason,
                               refunded_at, created_at, updated_at)
         VALUES (1, 'external', 'g', 'alipay', 1, 'refunded', 'too_late', now(), now() - interval '3 years', now() - interval '3 years')",
        "SELECT count(*) FROM payments",
    ),
    (
        Pass::Retention,
        "UPDATE",
        "settings",
        "UPDATE settings SET payments_kept_from = '2022-01-01T00:00:00Z';
         INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason,
                               refunded_at, created_at, updated_at)
         VALUES (1, 'external', 'h', 'alipay', 1, 'refunded', 'too_late', now(), now() - interval '3 years', now() - interval '3 years')",
        "SELECT count(*) FROM payments",
    ),
    (
        Pass::Retention,
        "DELETE",
        "opened_payments",
        "INSERT INTO opened_payments (order_id, method, amount_cents, currency, next_look_at, closed_at, created_at)
         VALUES (1, 'alipay', 1, 'CNY', now(), now() - interval '3 years', now() - interval '3 years')",
        "SELECT count(*) FROM opened_payments",
    ),
    (
        Pass::Retention,
        "DELETE",
        "dead_letters",
        "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, resolved_at, created_at)
         VALUES (0, '1-1', '{}', 'conflict', '', {coupon}, 1, 1, now() - interval '3 years', now() - interval '3 years')",
        "SELECT count(*) FROM dead_letters",
    ),
    (
        Pass::Retention,
        "DELETE",
        "stock_returns",
        "INSERT INTO stock_returns (order_id, what, coupon_id, user_id, done_at)
         VALUES (1, 'unit', {coupon}, 1, now() - interval '3 years')",
        "SELECT count(*) FROM stock_returns",
    ),
    (
        Pass::Retention,
        "DELETE",
        "postponed_settled",
        "INSERT INTO postponed_settled (id, pass, item, since, tries, error, settled_at)
         VALUES (1, 'expiry', 1, now() - interval '3 years', 1, 'x', now() - interval '3 years')",
        "SELECT count(*) FROM postponed_settled",
    ),
    (
        Pass::Retention,
        "DELETE",
        "jobs",
        "INSERT INTO jobs (coupon_id, key, reason, created_at, finished_at)
         VALUES ({coupon}, 'k', 'x', now() - interval '3 years', now() - interval '3 years')",
        "SELECT count(*) FROM jobs",
    ),
    (
        Pass::Retention,
        "DELETE",
        "restocks",
        "UPDATE coupons SET state = 'ended', ended_at = now() - interval '3 years' WHERE id = {coupon};
         INSERT INTO restocks (coupon_id, key, units) VALUES ({coupon}, 'k', 1)",
        "SELECT count(*) FROM restocks",
    ),
    (
        Pass::Retention,
        "DELETE",
        "reconcile_runs",
        "INSERT INTO reconcile_runs (asked_by, started_at)
         VALUES ('period', now() - interval '3 years'), ('period', now())",
        "SELECT count(*) - 1 FROM reconcile_runs",
    ),
    (
        Pass::Retention,
        "DELETE",
        "recoveries",
        "INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at)
         VALUES (0, 1, 'x', now() - interval '3 years', now()), (0, 2, 'x', now(), now())",
        "SELECT count(*) - 1 FROM recoveries",
    ),
    (
        Pass::Audit,
        "DELETE",
        "audit",
        "INSERT INTO audit (scope, action, subject_id, at)
         VALUES ('command_line', 'end_coupon', 1, now() - interval '3 years')",
        "SELECT count(*) FROM audit WHERE at < now() - interval '1 year'",
    ),
    (
        Pass::OrderCounts,
        "DELETE",
        "order_count_changes",
        "",
        "SELECT (count(*) > 0)::int::bigint FROM order_count_changes",
    ),
    (
        Pass::OrderCounts,
        "INSERT",
        "order_counts",
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
         VALUES (2, {coupon}, 'flash', 2, now(), 'cancelled', now())",
        "SELECT (count(*) > 0)::int::bigint FROM order_count_changes",
    ),
    (
        Pass::OrderCounts,
        "UPDATE",
        "order_count_audit",
        "",
        "SELECT (next_at <= now())::int::bigint FROM order_count_audit",
    ),
    (
        Pass::OrderCounts,
        "INSERT",
        "order_count_changes",
        "UPDATE order_counts SET orders = orders + 1",
        MISCOUNTED,
    ),
    (
        Pass::OrderCounts,
        "INSERT",
        "postponed_settled",
        "UPDATE order_counts SET orders = orders + 1",
        MISCOUNTED,
    ),
    (Pass::Reconcile, "INSERT", "reconcile_runs", "", NOT_COMPARED),
    (Pass::Reconcile, "UPDATE", "reconcile_runs", "DELETE FROM reconcile_runs", NOT_COMPARED),
    (Pass::Reconcile, "INSERT", "sale_readings", "DELETE FROM reconcile_runs", NOT_COMPARED),
    (
        Pass::Reconcile,
        "UPDATE",
        "sale_reading_audit",
        "",
        "SELECT (next_at <= now())::int::bigint FROM sale_reading_audit",
    ),
];

/// Orders by which the running counts differ from the rows.
const MISCOUNTED: &str =
    "SELECT abs((SELECT sum(orders) FROM order_counts) + (SELECT coalesce(sum(orders), 0) FROM order_count_changes)
         - (SELECT count(*) FROM orders))::bigint";

const NOT_COMPARED: &str = "SELECT (count(*) = 0)::int::bigint FROM reconcile_runs
    WHERE finished_at IS NOT NULL AND failure IS NULL";

/// The audits of these passes are due, from their beginning on.
async fn let_audits_be_due(app: &TestApp) {
    app.execute(
        "UPDATE order_count_audit SET after_coupon_id = 0, next_at = now();
         UPDATE sale_reading_audit SET next_at = now()",
    )
    .await;
}

/// Runs the pass. False if it fails.
async fn run(pass: Pass, app: &TestApp) -> bool {
    match pass {
        Pass::Retention => app.app.retention.pass().bounded().await.is_ok(),
        Pass::Audit => app.app.audit.pass(Duration::from_hours(24)).bounded().await.is_ok(),
        Pass::OrderCounts => app.app.order_counts.pass().bounded().await.is_ok(),
        Pass::Reconcile => {
            compare(app).await && app.app.reconciler.audit_next().bounded().await.is_ok()
        }
        _ => panic!("{pass:?} isn't in the table"),
    }
}

/// Compares the stores as the pass does. A run that has failed may hold its turn until its connection is closed.
async fn compare(app: &TestApp) -> bool {
    let by = Actor::command_line();
    bounded("the turn", async {
        loop {
            match app.app.reconciler.ask(None, false, &by).await {
                Ok(Asked::Busy(_)) => {}
                asked => return asked.is_ok(),
            }
        }
    })
    .await
}

async fn refuse_the_records_of(passes: &[Pass]) {
    let app = TestApp::configured(&["--payments-days", "3"]).await;
    app.expect_disagreements();
    let coupon: CouponId = app.create_flash(9).await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
         VALUES (1, {coupon}, 'flash', 1, now(), 'cancelled', now())"
    ))
    .await;
    for (pass, write, table, work, undone) in RECORDS {
        if !passes.contains(&pass) {
            continue;
        }
        if !work.is_empty() {
            app.execute(&work.replace("{coupon}", &coupon.to_string())).await;
        }
        for state in STATES {
            let case = format!("{state} on {write} {table} of {pass:?}");
            let_audits_be_due(&app).await;
            app.refuse(write, table, "true", state).await;
            assert!(!run(pass, &app).await, "{case}: the pass fails");
            assert_eq!(app.number(undone).await, 1, "{case}: the work is left");
            assert_eq!(app.postponed().await, [""; 0], "{case}");
            app.accept(table).await;
        }
        let_audits_be_due(&app).await;
        assert!(run(pass, &app).await, "{write} {table} of {pass:?}");
        assert_eq!(app.number(undone).await, 0, "{write} {table} of {pass:?}: it is done by now");
    }
}

#[tokio::test]
async fn the_writes_of_retention_and_of_the_book_of_changes() {
    refuse_the_records_of(&[Pass::Retention, Pass::Audit]).await;
}

#[tokio::test]
async fn the_writes_of_running_counts() {
    refuse_the_records_of(&[Pass::OrderCounts]).await;
}

#[tokio::test]
async fn the_records_of_comparisons() {
    refuse_the_records_of(&[Pass::Reconcile]).await;
}

/// Passes that stand in neither table: the file and the test where Postgres refuses a write; or nothing for a pass that
/// writes nothing to Postgres.
const ELSEWHERE: [(Pass, Option<(&str, &str)>); 5] = [
    // Each class.
    (Pass::Write, Some(("tests/it/tables/sqlstates/mod.rs", "a_batch_of_the_worker"))),
    // Each class: the only rows are dead letters of entries that Redis has lost.
    (
        Pass::Recover,
        Some((
            "tests/it/worker/lane/recovering.rs",
            "lost_entries_are_counted_at_once_and_put_aside_once_postgres_takes_them",
        )),
    ),
    (Pass::TidyUp, None),
    (Pass::Numbers, None),
    // Four codes.
    (Pass::Rebuild, Some(("tests/it/tables/sqlstates/lanes.rs", "a_rebuild_of_two_sales"))),
];

/// A new pass has to be entered in a table, or in the list with the place where its writes are refused.
#[test]
fn each_pass_has_a_place_where_its_writes_are_refused() {
    let mut names = BTreeSet::new();
    for (pass, shown) in ELSEWHERE {
        assert!(names.insert(pass.name()), "{pass:?} twice");
        let Some((path, test)) = shown else { continue };
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let text = std::fs::read_to_string(&file).expect("the file is there");
        assert!(text.contains(&format!("fn {test}(")), "{path} has no test {test}");
    }
    let in_tables = WRITES.map(|row| row.1).into_iter().chain(RECORDS.map(|row| row.0));
    for pass in in_tables {
        assert!(!ELSEWHERE.iter().any(|(other, _)| *other == pass), "{pass:?} is in a table");
        names.insert(pass.name());
    }
    assert_eq!(names, Pass::ALL.into_iter().map(Pass::name).collect());
}
