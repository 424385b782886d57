//! `due`: comparisons by the clock, and after a recovery that compared nothing.

use std::time::Duration;

use crate::support::lines::{Lines, number, rows_returned};
use crate::support::{Bounded, TestApp, patience};

const UNCHECKED: &str = "SELECT count(*) FROM lane_beats WHERE unchecked_since IS NOT NULL";

/// An app with an order, whose comparisons run only in [`Place::pass`].
struct Place {
    app: TestApp,
}

impl Place {
    async fn new() -> Self {
        let app = TestApp::start().await;
        let coupon = app.create_flash(5).await;
        app.order(1, coupon).await;
        Self { app }
    }

    /// The sales of the lane have to be read.
    async fn note_unchecked(&self) {
        self.app.execute("UPDATE lane_beats SET unchecked_since = clock_timestamp()").await;
    }

    /// All comparisons began this long ago, and ended a second later.
    async fn let_runs_age(&self, ago: &str) {
        let dates = format!(
            "UPDATE reconcile_runs SET started_at = now() - interval '{ago}', finished_at = now() - interval '{ago}' + interval '1 s'"
        );
        self.app.execute(&dates).await;
    }

    /// A pass. Returns whether it failed, and the number of comparisons and of lanes that are unchecked then.
    async fn pass(&self, period: Duration) -> (bool, i64, i64) {
        let failed = self.app.app.reconciler.pass(period).bounded().await.is_err();
        let runs = self.app.number("SELECT count(*) FROM reconcile_runs").await;
        (failed, runs, self.app.number(UNCHECKED).await)
    }
}

const NEVER: Duration = Duration::ZERO;
const HOUR: Duration = Duration::from_hours(1);

#[tokio::test]
async fn due_is_a_comparison_for_unchecked_lanes_or_by_the_clock() {
    let place = Place::new().await;
    assert_eq!(place.pass(NEVER).await, (false, 0, 0));
    let rests = "SELECT count(*) FROM sale_reading_audit WHERE next_at > now()";
    assert_eq!(place.app.number(rests).await, 0, "without a period there is no audit");
    place.note_unchecked().await;
    assert_eq!(place.pass(NEVER).await, (false, 1, 0));
    let told = "SELECT concat_ws(' ', asked_by, kind, sales, unchanged, disagreements) FROM reconcile_runs ORDER BY id DESC LIMIT 1";
    assert_eq!(place.app.texts(told).await, ["period changed 1 0 0"]);
    assert_eq!(place.pass(HOUR).await, (false, 1, 0), "the last one is young");
    assert_eq!(place.app.number(rests).await, 1, "the audit has looked");
    place.let_runs_age("59 min").await;
    assert_eq!(place.pass(HOUR).await, (false, 1, 0));
    place.note_unchecked().await;
    assert_eq!(place.pass(HOUR).await, (false, 2, 0), "its sales are read at once");
    assert_eq!(place.app.texts(told).await, ["period changed 1 0 0"]);
    place.let_runs_age("61 min").await;
    assert_eq!(place.pass(HOUR).await, (false, 3, 0));
    assert_eq!(place.app.texts(told).await, ["period changed 1 1 0"], "nothing has changed");
    assert_eq!(place.pass(NEVER).await, (false, 3, 0));
}

/// Postgres refuses to note the reading.
#[tokio::test]
async fn due_is_no_comparison_that_has_just_failed() {
    let place = Place::new().await;
    let app = &place.app;
    app.refuse("INSERT", "sale_readings", "true", "42501").await;
    place.note_unchecked().await;
    let failures = || number(&app.app, "flash_sale_reconcile_failed_total");
    assert_eq!((place.pass(NEVER).await, failures()), ((true, 1, 1), 1.0));
    let failed =
        "SELECT count(*) FROM reconcile_runs WHERE failure IS NOT NULL AND finished_at IS NOT NULL";
    assert_eq!(app.number(failed).await, 1);
    assert_eq!((place.pass(NEVER).await, failures()), ((false, 1, 1), 1.0), "not at once");
    place.let_runs_age("10 s").await;
    app.accept("sale_readings").await;
    assert_eq!(place.pass(NEVER).await, (false, 1, 1));
    place.let_runs_age("40 s").await;
    assert_eq!((place.pass(NEVER).await, failures()), ((false, 2, 0), 1.0));
}

/// The page shows the last comparison of any process, once a process has passed.
#[tokio::test]
async fn show_tells_the_last_comparison_of_any_process() {
    let place = Place::new().await;
    let other = place.app.another_instance().await;
    let finished = "flash_sale_reconcile_finished_timestamp_seconds";
    assert!(!other.metrics.page().contains(finished));
    other.reconciler.pass(NEVER).bounded().await.expect("both stores answer");
    assert!(!other.metrics.page().contains(finished), "there is none");
    assert_eq!(place.pass(HOUR).await, (false, 1, 0));
    other.reconciler.pass(NEVER).bounded().await.expect("both stores answer");
    assert_eq!(number(&other, finished), number(&place.app.app, finished));
    assert_eq!(number(&other, "flash_sale_orders{status=\"unpaid\"}"), 1.0);
    assert_eq!(number(&other, "flash_sale_reconcile_disagreements"), 0.0);
    // A failed one is not shown.
    place.app.execute(
        "INSERT INTO reconcile_runs (asked_by, kind, finished_at, failure) VALUES ('period', 'changed', now() + interval '1 day', 'x')",
    )
    .await;
    other.reconciler.pass(NEVER).bounded().await.expect("both stores answer");
    assert_eq!(number(&other, finished), number(&place.app.app, finished));
    place.app.execute("DELETE FROM reconcile_runs WHERE failure IS NOT NULL").await;
}

/// The turn costs a connection of its own.
#[tokio::test]
async fn due_takes_the_turn_only_for_a_comparison_and_one_row_tells_the_last_one() {
    let place = Place::new().await;
    for (runs, turns) in [(1, 1), (2, 1), (2, 0)] {
        if turns > 0 {
            place.note_unchecked().await;
        }
        let lines = Lines::down_to(tracing::Level::DEBUG);
        assert_eq!(place.pass(NEVER).await, (false, runs, 0));
        assert_eq!(lines.count("pg_try_advisory_xact_lock"), turns, "{runs}");
        let last = rows_returned(&lines, "disagreements IS NOT NULL OR NOT $3");
        assert_eq!(last, [1], "{runs}");
    }
}

/// Postgres has answered the statements that end them. Without a sale, no other transaction is rolled back.
#[tokio::test]
async fn compare_if_due_and_audit_next_end_their_turns_and_take_none_while_the_audit_rests() {
    let app = TestApp::start().await;
    let lines = Lines::down_to(tracing::Level::DEBUG);
    for _ in 0..2 {
        app.app.reconciler.pass(HOUR).bounded().await.expect("both stores answer");
        let told = ["pg_try_advisory_xact_lock", "summary=\"ROLLBACK\""];
        assert_eq!(told.map(|words| lines.count(words)), [2, 2]);
    }
}

#[tokio::test]
async fn pass_is_given_up_when_the_service_stops() {
    let place = Place::new().await;
    assert!(place.app.app.shutdown.stop(patience()).await);
    assert_eq!(place.pass(HOUR).await, (false, 0, 0));
}
