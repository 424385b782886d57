//! `pass`: the log tells a change of the findings once, and the gauges tell the last comparison.

use std::time::Duration;

use flash_sale::base::limits::LOGGED_DISAGREEMENTS_MAX;

use crate::support::lines::{Lines, number};
use crate::support::{Bounded, TestApp};

const ALARM: &str = "ALARM: Redis and Postgres disagree";
const AGREE: &str = "Redis and Postgres agree again";

/// A comparison that is due, and is shown.
async fn compare(app: &TestApp) {
    app.execute(
        "UPDATE reconcile_runs SET started_at = started_at - interval '1 day', finished_at = finished_at - interval '1 day';
         UPDATE sale_reading_audit SET next_at = now() + interval '1 day'",
    )
    .await;
    app.app.reconciler.pass(Duration::from_secs(60)).bounded().await.expect("both stores answer");
}

#[tokio::test]
async fn log_change_tells_new_findings_and_their_end_once() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(50).await;
    app.order(1, coupon).await;
    let lines = Lines::heard();
    let told = || (lines.count(ALARM), lines.count(AGREE));
    compare(&app).await;
    assert_eq!(told(), (0, 0), "all is well from the beginning");
    for user in 1..=22 {
        app.set_buyer(coupon, 100 + user, 1_000 + user).await;
    }
    let stock = |units: i64| units.to_string();
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "stock", &stock(27)]).await;
    compare(&app).await;
    assert_eq!(told(), (1, 0));
    assert!(lines.with(ALARM)[0].contains("disagreements=22"), "{:?}", lines.with(ALARM));
    assert_eq!(lines.count("was promised order"), LOGGED_DISAGREEMENTS_MAX);
    assert_eq!(lines.count("code=\"order_lost\""), LOGGED_DISAGREEMENTS_MAX);
    compare(&app).await;
    assert_eq!(told(), (1, 0), "the same findings are told once");
    app.app.reconciler.pass(Duration::from_secs(60)).bounded().await.expect("both stores answer");
    assert_eq!(told(), (1, 0), "no comparison is due");
    let of =
        |code: &str| number(&app.app, &format!("flash_sale_reconcile_findings{{code=\"{code}\"}}"));
    assert_eq!((of("order_lost"), of("sale_missing")), (22.0, 0.0));
    assert_eq!(number(&app.app, "flash_sale_orders{status=\"unpaid\"}"), 1.0);
    app.forget_buyer(coupon, 101).await;
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "stock", &stock(28)]).await;
    compare(&app).await;
    assert_eq!(told(), (2, 0), "a finding less is a change");
    for user in 2..=22 {
        app.forget_buyer(coupon, 100 + user).await;
    }
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "stock", &stock(49)]).await;
    compare(&app).await;
    assert_eq!(told(), (2, 1));
    compare(&app).await;
    assert_eq!(told(), (2, 1));
    assert_eq!(of("order_lost"), 0.0);
}

/// Records by hand, in which the findings stand in one order and in the other.
#[tokio::test]
async fn show_tells_the_findings_of_a_record_once_whatever_their_order_and_what_becomes_of_it() {
    let app = TestApp::start().await;
    let lines = Lines::heard();
    let told = || (lines.count(ALARM), lines.count(AGREE));
    let passes = async || {
        for _ in 0..3 {
            app.app.reconciler.pass(Duration::ZERO).bounded().await.expect("both stores answer");
        }
    };
    let [lost, oversold] = ["order_lost", "oversold"]
        .map(|code| format!(r#"{{"code": "{code}", "coupon_id": "1", "detail": "x"}}"#));
    for findings in [[&lost, &oversold], [&oversold, &lost]] {
        app.execute(&format!(
            "INSERT INTO reconcile_runs (asked_by, started_at, finished_at, disagreements, at_rest, sales, in_flight, orders, findings)
             VALUES ('api', now() - interval '7 s', now(), 2, true, 1, 0, '{{}}', '[{}, {}]')",
            findings[0], findings[1]
        ))
        .await;
        passes().await;
        assert_eq!(told(), (1, 0), "{findings:?}");
    }
    app.execute("UPDATE reconcile_runs SET disagreements = 0, findings = '[]'").await;
    passes().await;
    assert_eq!(told(), (1, 0));
    let of = |name: &str| number(&app.app, &format!("flash_sale_reconcile_{name}"));
    assert_eq!((of("disagreements"), of("duration_seconds")), (2.0, 7.0));
}
