//! One comparison at a time, of all processes: the next one waits, is refused, or takes over from a process that died.

use std::time::Duration;

use flash_sale::recovery::reconcile::job::Asked;
use flash_sale::store::postgres;
use serde_json::Value;
use sqlx::{Postgres, Transaction};

use crate::support::{Bounded, TestApp, eventually};

/// The connection that holds the turn.
const HOLDER: &str = "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
    WHERE locktype = 'advisory' AND granted AND datname = current_database()
      AND classid = x'636f6d70'::int::oid";

/// Holds each comparison at its first check of the sales.
async fn hold_comparisons(app: &TestApp) -> Transaction<'static, Postgres> {
    let mut held = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
    let lock = "SET LOCAL idle_in_transaction_session_timeout = 0; LOCK TABLE flash_sales";
    sqlx::raw_sql(lock).execute(&mut *held).await.expect("Postgres answers");
    held
}

async fn has_begun(app: &TestApp) {
    eventually("a comparison holds the turn and waits", async || {
        let waiting = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'SELECT coupon_id AS%FROM flash_sales%'";
        app.number(HOLDER).await == 1 && app.number(waiting).await == 1
    })
    .await;
}

#[tokio::test]
async fn the_second_of_two_processes_is_told_that_a_comparison_runs() {
    let app = TestApp::start().await;
    app.create_flash(5).await;
    let another = app.another_instance().await;
    let held = hold_comparisons(&app).await;
    let first = another.reconciler.ask();
    let others = async {
        has_begun(&app).await;
        let refused = app.post("/v1/reconcile", &app.admin_token(), &Value::Null).await;
        assert_eq!(refused.refusal(), (409, "comparison_running"));
        let run = app.number("SELECT id FROM reconcile_runs").await;
        let detail = refused.text("detail");
        assert!(detail.contains(&format!("comparison {run} ")), "{detail}");
        // The worker's own, which is long due.
        app.execute("UPDATE reconcile_runs SET started_at = started_at - interval '1 day'").await;
        app.app
            .reconciler
            .run_once(Duration::from_secs(60))
            .bounded()
            .await
            .expect("Postgres answers");
        assert_eq!(app.number("SELECT count(*) FROM reconcile_runs").await, 1);
        assert_eq!(app.number(HOLDER).await, 1);
        held.rollback().await.expect("Postgres answers");
    };
    let (first, ()) = tokio::join!(first.bounded(), others);
    assert!(matches!(first, Ok(Asked::Compared(run)) if run.disagreements == Some(0)));
    assert_eq!(app.compare().await.status, 200);
}

#[tokio::test]
async fn a_comparison_that_has_lost_its_turn_breaks_off() {
    let app = TestApp::start().await;
    app.create_flash(5).await;
    let held = hold_comparisons(&app).await;
    let compared = app.app.reconciler.ask();
    let cut = async {
        has_begun(&app).await;
        // As Postgres does with one that is silent.
        let end = HOLDER.replace("count(*)", "count(pg_terminate_backend(pid))");
        assert_eq!(app.number(&end).await, 1);
        let failed = "SELECT count(*) FROM reconcile_runs WHERE failure IS NOT NULL";
        eventually("the failure is on record", async || app.number(failed).await == 1).await;
        held.rollback().await.expect("Postgres answers");
    };
    let (compared, ()) = tokio::join!(compared.bounded(), cut);
    assert!(compared.is_err(), "{compared:?}");
}
