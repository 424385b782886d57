//! The record of comparisons: access, retention, due times, and the metrics about it.

use std::time::Duration;

use flash_sale::recovery::reconcile::Disagreement;
use serde_json::{Value, json};

use crate::support::{Bounded, TestApp};

const PERIOD: Duration = Duration::from_secs(60);

async fn runs(app: &TestApp) -> i64 {
    app.number("SELECT count(*) FROM reconcile_runs").await
}

/// Dates the whole record back by a day.
async fn a_day_passes(app: &TestApp) {
    let all = "UPDATE reconcile_runs SET started_at = started_at - interval '1 day', finished_at = finished_at - interval '1 day'";
    app.execute(all).await;
}

async fn assert_page(app: &TestApp, lines: &[&str]) {
    let page = app.get("/metrics", "").await;
    let page = page.body.as_str().expect("text");
    for line in lines {
        assert!(page.lines().any(|on_page| on_page == *line), "no line {line:?} in:\n{page}");
    }
}

#[tokio::test]
async fn every_comparison_is_on_record() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    app.claim(1, coupon).await;
    let admin = app.admin_token();
    let mut ids = Vec::new();
    for _ in 0..3 {
        let run = app.compare().await;
        assert_eq!(run.status, 200);
        let asked = (&run.body["asked_by"], &run.body["at_rest"], &run.body["in_flight"]);
        assert_eq!(asked, (&json!("api"), &json!(false), &json!(1)), "{run:?}");
        let shown = app.get(&format!("/v1/reconcile/runs/{}", run.text("run_id")), &admin).await;
        assert_eq!(shown.body, run.body);
        ids.insert(0, run.text("run_id").to_owned());
    }
    let page = app.get("/v1/reconcile/runs?limit=2", &admin).await.body;
    let next = page["next_cursor"].as_str().expect("there is one more");
    let rest = app.get(&format!("/v1/reconcile/runs?limit=2&cursor={next}"), &admin).await.body;
    assert_eq!(rest["next_cursor"], json!(null));
    let listed = page["runs"].as_array().unwrap().iter().chain(rest["runs"].as_array().unwrap());
    let listed: Vec<&str> = listed.map(|run| run["run_id"].as_str().unwrap()).collect();
    assert_eq!(listed, ids);
}

#[tokio::test]
async fn who_may_not_compare_and_what_is_no_request() {
    let app = TestApp::start().await;
    let admin = app.admin_token();
    let refused = app.post("/v1/reconcile", &app.token(1), &Value::Null).await;
    assert_eq!(refused.refusal(), (403, "forbidden"));
    let refused = app.get("/v1/reconcile/runs", &app.token(1)).await;
    assert_eq!(refused.refusal(), (403, "forbidden"));
    assert_eq!(app.get("/v1/reconcile/runs", "").await.refusal(), (401, "invalid_token"));
    for (path, refusal) in [
        ("/v1/reconcile/runs/7", (404, "run_not_found")),
        ("/v1/reconcile/runs/x", (400, "invalid_id")),
        ("/v1/reconcile/runs?limit=101", (400, "invalid_query")),
        ("/v1/reconcile/runs?cursor=x", (400, "invalid_query")),
    ] {
        assert_eq!(app.get(path, &admin).await.refusal(), refusal, "{path}");
    }
    assert_eq!(runs(&app).await, 0);
}

#[tokio::test]
async fn a_comparison_is_due_once_a_period_for_all_processes_together() {
    let app = TestApp::start().await;
    let another = app.another_instance().await;
    let never = Duration::ZERO;
    app.app.reconciler.run_once(never).bounded().await.unwrap();
    assert_eq!(runs(&app).await, 0);
    for reconciler in [&app.app.reconciler, &another.reconciler, &app.app.reconciler] {
        reconciler.run_once(PERIOD).bounded().await.unwrap();
        assert_eq!(runs(&app).await, 1);
    }
    a_day_passes(&app).await;
    another.reconciler.run_once(PERIOD).bounded().await.unwrap();
    assert_eq!(runs(&app).await, 2);

    // One that took an hour, and one whose process died.
    a_day_passes(&app).await;
    app.execute("UPDATE reconcile_runs SET finished_at = started_at + interval '2 hours'").await;
    app.app.reconciler.run_once(PERIOD).bounded().await.unwrap();
    assert_eq!(runs(&app).await, 2, "that would take more than a twentieth of the time");
    app.execute("DELETE FROM reconcile_runs; INSERT INTO reconcile_runs (asked_by) VALUES ('api')")
        .await;
    app.app.reconciler.run_once(PERIOD).bounded().await.unwrap();
    assert_eq!(runs(&app).await, 1, "it may still be at it");
    a_day_passes(&app).await;
    app.app.reconciler.run_once(PERIOD).bounded().await.unwrap();
    assert_eq!(runs(&app).await, 2);

    app.execute("UPDATE reconcile_runs SET started_at = now() - interval '366 days', finished_at = NULL, failure = NULL, at_rest = NULL, sales = NULL, in_flight = NULL, disagreements = NULL")
        .await;
    app.app.retention.run_once().bounded().await.unwrap();
    assert_eq!(runs(&app).await, 0, "old records are forgotten");
}

#[tokio::test]
async fn every_process_shows_what_the_last_comparison_found() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    app.claim(1, coupon).await;
    app.write_orders().await;
    let another = app.another_instance().await;
    let key = app.keys().coupon(coupon);
    for (change, found) in [("1", 1), ("-1", 0)] {
        let _: i64 = app.redis(&["HINCRBY", &key, "stock", change]).await;
        a_day_passes(&app).await;
        another.reconciler.run_once(PERIOD).bounded().await.unwrap();
        app.app.reconciler.run_once(PERIOD).bounded().await.unwrap();
        let conserved = format!("flash_sale_reconcile_findings{{code=\"not_conserved\"}} {found}");
        let all = format!("flash_sale_reconcile_disagreements {found}");
        assert_page(&app, &[&conserved, &all]).await;
    }
}

#[tokio::test]
async fn a_comparison_that_breaks_off_is_on_record_and_counted() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    app.claim(1, coupon).await;
    // A store can fail in any way; here, a table is missing.
    app.execute("ALTER TABLE dead_letters RENAME TO aside").await;
    assert!(app.app.reconciler.run_once(PERIOD).bounded().await.is_err());
    assert_page(&app, &["flash_sale_reconcile_failed_total 1"]).await;
    let failed =
        "SELECT count(*) FROM reconcile_runs WHERE failure IS NOT NULL AND finished_at IS NOT NULL";
    assert_eq!(app.number(failed).await, 1);
    let asked = app.post("/v1/reconcile", &app.admin_token(), &Value::Null).await;
    assert_eq!(asked.refusal(), (503, "unavailable"));
    app.execute("ALTER TABLE aside RENAME TO dead_letters").await;
}

#[test]
fn the_document_explains_every_finding() {
    let document = include_str!("../../../docs/reconcile.md");
    for code in Disagreement::CODES {
        let heading = |line: &str| line.starts_with("### ") && line.contains(&format!("`{code}`"));
        assert!(document.lines().any(heading), "docs/reconcile.md has no heading for {code}");
    }
}
