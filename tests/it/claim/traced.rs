//! One claim, followed: only if its client asks, and each step that this process has not measured is null.

use flash_sale::kit::jwt::Scope;
use flash_sale::log::{Entries, Entry};
use serde_json::Value;

use crate::support::{
    Bounded, Reply, TestApp, claims_in, lane, scoped_token, worker_of, write_all,
};

/// The steps in their order.
const STEPS: [&str; 8] =
    ["queue", "script", "answer", "log", "batch", "locks", "row", "acknowledgement"];

#[tokio::test]
async fn a_claim_is_followed_from_its_queue_to_its_acknowledgement() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(3).await;
    let claimed = app.claim_traced(1, coupon, "1").await;
    assert_eq!(claimed.status, 202, "{claimed:?}");
    let times = claimed.header("server-timing");
    assert!(times.starts_with("queue;dur=") && times.contains(", script;dur="), "{times}");
    assert!(times.ends_with(r#";desc="1 claim""#), "{times}");

    let order = claimed.order_id();
    let before = follow(&app, 1, order).await;
    assert_eq!(known(&before), ["queue", "script", "answer"]);
    for fact in ["claimed_at", "written_at", "row_after", "entry", "worker", "batch_claims"] {
        assert!(before.body[fact].is_null(), "{fact}: {before:?}");
    }

    let entries = entries(&app).await;
    let [claim] = claims_in(&entries)[..] else { panic!("{entries:?}") };
    app.write_orders().await;
    let trace = follow(&app, 1, order).await;
    assert_eq!(known(&trace), STEPS);
    assert_eq!(trace.text("order_id"), order.to_string());
    assert_eq!(trace.text("coupon_id"), coupon.to_string());
    assert_eq!(trace.text("entry"), claim.place.entry.to_string());
    assert_eq!((&trace.body["call_claims"], &trace.body["batch_claims"]), (&1.into(), &1.into()));
    let claimed_at: chrono::DateTime<chrono::Utc> = trace.text("claimed_at").parse().unwrap();
    assert_eq!(claimed_at, claim.claimed_at);
    assert!(trace.body["written_at"].is_string() && !trace.text("worker").is_empty());
    assert_eq!(trace.body["row_after"]["approximate"], false);
    assert_in_order(&trace);
    // The steps before are told as before.
    assert_eq!(
        trace.body["steps"].as_array().unwrap()[..3],
        before.body["steps"].as_array().unwrap()[..3]
    );
}

#[tokio::test]
async fn without_asking_there_is_no_trace() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(20).await;
    for (user, value) in (1..).zip(["", "0", "2", "true", "yes", "01", "1, 1", "on"]) {
        let claimed = app.claim_traced(user, coupon, value).await;
        assert_eq!((claimed.status, claimed.header("server-timing")), (202, ""), "{value:?}");
        app.write_orders().await;
        assert_eq!(ask(&app, user, claimed.order_id()).await.refusal(), (404, "not_traced"));
    }
    let plain = app.claim(20, coupon).await;
    assert_eq!(plain.header("server-timing"), "");
    assert_eq!(ask(&app, 20, plain.order_id()).await.refusal(), (404, "not_traced"));
}

#[tokio::test]
async fn a_refusal_tells_its_times_and_has_no_trace() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1).await;
    let first = app.claim(1, coupon).await;
    // The first answer of this kind: the memory of the process doesn't have it yet.
    let sold_out = app.claim_traced(2, coupon, "1").await;
    assert_eq!(sold_out.refusal(), (410, "sold_out"));
    assert!(sold_out.header("server-timing").starts_with("queue;dur="), "{sold_out:?}");
    // A repeat is no accepted claim.
    let repeat = app.claim_traced(1, coupon, "1").await;
    assert_eq!(repeat.refusal(), (409, "already_claimed"));
    assert_eq!(ask(&app, 1, first.order_id()).await.refusal(), (404, "not_traced"));
}

#[tokio::test]
async fn what_another_process_has_done_is_null() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    let order = app.claim_traced(1, coupon, "1").await.order_id();
    let other = app.another_instance().await;
    let mut worker = worker_of(&other, &app.config, lane());
    worker.ensure_group().bounded().await.expect("Redis answers");
    assert_eq!(write_all(&mut worker).await.inserted, 1);

    let trace = follow(&app, 1, order).await;
    assert_eq!(known(&trace), ["queue", "script", "answer"]);
    for fact in ["entry", "worker", "batch_claims"] {
        assert!(trace.body[fact].is_null(), "{fact}: {trace:?}");
    }
    // Postgres tells the row, and its time lies between two clocks.
    assert!(trace.body["claimed_at"].is_string() && trace.body["written_at"].is_string());
    assert_eq!(trace.body["row_after"]["approximate"], true);
    // The process that has written it doesn't know the claim.
    let order = flash_sale::store::ids::OrderId::new(order).expect("an id");
    assert!(other.traces.follow(order, None).await.expect("Postgres answers").is_none());
}

#[tokio::test]
async fn only_its_user_and_operators_follow_a_claim() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    let order = app.claim_traced(1, coupon, "1").await.order_id();
    let path = format!("/v1/orders/{order}/trace");
    let missing = format!("/v1/orders/{}/trace", i64::MAX);
    for token in [app.token(2), scoped_token(2, Scope::Clerk)] {
        let mut refused = app.get(&path, &token).await;
        assert_eq!(refused.refusal(), (404, "not_traced"));
        let mut none = app.get(&missing, &token).await;
        refused.body["request_id"] = Value::Null;
        none.body["request_id"] = Value::Null;
        assert_eq!(refused.body, none.body, "another user's claim is told apart from none");
    }
    for token in [app.token(1), scoped_token(2, Scope::Operator), app.admin_token()] {
        assert_eq!(app.get(&path, &token).await.status, 200);
    }
    app.write_orders().await;
}

// ---- steps of these tests ----

/// The entries of the log.
async fn entries(app: &TestApp) -> Vec<Entry> {
    app.redis::<Entries>(&["XRANGE", &app.log(lane()), "-", "+"]).await.0
}

async fn ask(app: &TestApp, user: i64, order: i64) -> Reply {
    app.get(&format!("/v1/orders/{order}/trace"), &app.token(user)).await
}

async fn follow(app: &TestApp, user: i64, order: i64) -> Reply {
    let trace = ask(app, user, order).await;
    assert_eq!(trace.status, 200, "{trace:?}");
    let steps: Vec<&str> = steps(&trace).iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(steps, STEPS);
    // What begins in Redis lies between two clocks, whether it is known or not.
    for step in self::steps(&trace) {
        assert_eq!(step["approximate"], step["name"] == "log", "{step}");
        assert_eq!(step["starts_us"].is_null(), step["took_us"].is_null(), "{step}");
    }
    trace
}

fn steps(trace: &Reply) -> &Vec<Value> {
    trace.body["steps"].as_array().expect("a list")
}

/// The steps that have a time.
fn known(trace: &Reply) -> Vec<&str> {
    let known = steps(trace).iter().filter(|step| !step["took_us"].is_null());
    known.map(|step| step["name"].as_str().expect("a word")).collect()
}

/// Each step begins where the one before ends, but for the answer, beside which the entry waits. Rounded to whole
/// microseconds, two ends may lie one apart.
fn assert_in_order(trace: &Reply) {
    let times = |name: &str| {
        let step = steps(trace).iter().find(|step| step["name"] == name).expect("a step");
        let [from, took] = ["starts_us", "took_us"].map(|it| step[it].as_u64().expect("a number"));
        (from, from + took)
    };
    assert_eq!(times("queue").0, 0, "{trace:?}");
    for (before, after) in [
        ("queue", "script"),
        ("script", "answer"),
        ("log", "batch"),
        ("batch", "locks"),
        ("locks", "row"),
        ("row", "acknowledgement"),
    ] {
        let gap = times(after).0.abs_diff(times(before).1);
        assert!(gap <= 1, "{before} and {after} are {gap} us apart: {trace:?}");
    }
    let row = trace.body["row_after"]["us"].as_u64().expect("a number");
    assert!(row.abs_diff(times("row").1) <= 1, "{trace:?}");
}
