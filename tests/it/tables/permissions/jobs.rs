//! Jobs that cancel the unpaid orders of a coupon: by the state of the coupon, and by their own.

use flash_sale::sale::ids::CouponId;
use serde_json::{Value, json};

use super::answers::{Call, Row, Thing, ask, compare, listed, token_of, verb_and_role};
use super::{MISSING, OWNER};
use crate::support::{Reply, TestApp};

/// Each coupon has an order of the owner: paid, where the name says so or the sale is archived, else unpaid.
const COUPONS: &[&str] = &[
    "open",
    "open_paid",
    "sold_out",
    "paused",
    "ended",
    "archived",
    "regular",
    "regular_paid",
    "regular_paused",
    "regular_ended",
    "none",
];
const ANY: &str = "open open_paid sold_out paused ended archived regular regular_paid regular_paused \
                   regular_ended none";

/// The word behind a 202 is the status of the order after the next pass.
pub const OF_COUPONS: &[Row] = &[
    (
        "cancel unpaid, by an administrator",
        &[
            ("202 cancelled", "open sold_out paused ended regular regular_paused regular_ended"),
            ("202 paid", "open_paid archived regular_paid"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    ("cancel unpaid, by the owner", &[("403 forbidden", ANY)]),
    ("cancel unpaid, by an operator", &[("403 forbidden", ANY)]),
    ("cancel unpaid, by a caller without token", &[("401 invalid_token", ANY)]),
];

/// The coupon of `none` has no job.
const JOBS: &[&str] = &["open", "finished", "none"];

/// The word behind a 200 or 202 is the state of the job.
pub const OF_JOBS: &[Row] = &[
    (
        "show, by an operator",
        &[
            ("200 open, unchanged", "open"),
            ("200 finished, unchanged", "finished"),
            ("404 job_not_found", "none"),
        ],
    ),
    (
        "list, by an operator",
        &[("200 listed, unchanged", "open finished"), ("200 not listed, unchanged", "none")],
    ),
    (
        "cancel unpaid, by an administrator",
        &[
            ("202 open, unchanged", "open"),
            ("202 finished, unchanged", "finished"),
            ("202 open", "none"),
        ],
    ),
    (
        "cancel unpaid for another reason, by an administrator",
        &[("422 idempotency_key_reused", "open finished"), ("202 open", "none")],
    ),
    ("show, by a clerk", &[("403 forbidden", "open finished none")]),
    ("show, by a caller without token", &[("401 invalid_token", "open finished none")]),
];

#[tokio::test]
async fn unpaid_orders_are_cancelled_in_each_state_of_their_coupon() {
    let app = TestApp::start().await;
    let bring_to = async |state: &str| coupon(&app, state).await;
    let act = async |thing: Thing, action: &str| {
        let mut reply = act(&app, thing, action).await;
        if let (202, Some(order)) = (reply.status, thing.order) {
            app.cancel_for_jobs().await;
            reply.body = json!({ "status": app.status(OWNER, order).await });
        }
        reply
    };
    compare(&app, COUPONS, OF_COUPONS, bring_to, act).await;
}

#[tokio::test]
async fn each_action_on_a_job_is_answered_by_its_state() {
    let app = TestApp::start().await;
    let bring_to = async |state: &str| job(&app, state).await;
    let act = async |thing: Thing, action: &str| {
        let mut reply = act(&app, thing, action).await;
        if let Some(finished_at) = reply.body.get("finished_at") {
            let status = if finished_at.is_null() { "open" } else { "finished" };
            reply.body = json!({ "status": status });
        }
        if action.starts_with("list") { listed(reply, "jobs", thing.id) } else { reply }
    };
    compare(&app, JOBS, OF_JOBS, bring_to, act).await;
}

async fn coupon(app: &TestApp, state: &str) -> Thing {
    if state == "none" {
        let coupon = CouponId::new(MISSING).expect("a positive number");
        return Thing { id: MISSING, coupon: Some(coupon), order: None };
    }
    let coupon = match (state.starts_with("regular"), state) {
        (true, _) => app.create_regular().await,
        (false, "sold_out") => app.create_flash(1).await,
        (false, _) => app.create_flash(2).await,
    };
    let order = match state {
        "open_paid" | "regular_paid" | "archived" => app.paid_order(OWNER, coupon).await,
        _ => app.order(OWNER, coupon).await,
    };
    let moved = match state {
        "paused" | "regular_paused" => app.r#move(coupon, "pause").await.status,
        "ended" | "regular_ended" | "archived" => app.r#move(coupon, "end").await.status,
        _ => 200,
    };
    assert_eq!(moved, 200, "{state}");
    if state == "archived" {
        let archive = format!("/v1/coupons/{coupon}/archive");
        let body = json!({"accept_loss": false});
        assert_eq!(app.post(&archive, &app.admin_token(), &body).await.status, 200);
    }
    Thing { id: order, coupon: Some(coupon), order: Some(order) }
}

/// A job about the owner's unpaid order of a new sale, in this state.
async fn job(app: &TestApp, state: &str) -> Thing {
    let coupon = coupon(app, "open").await;
    let none = Thing { id: MISSING, ..coupon };
    if state == "none" {
        return none;
    }
    let begun = act(app, none, "cancel unpaid, by an administrator").await;
    assert_eq!(begun.status, 202, "{begun:?}");
    if state == "finished" {
        assert!(app.cancel_for_jobs().await >= 1);
    }
    Thing { id: begun.text("job_id").parse().expect("an id"), ..none }
}

/// The request behind an action.
pub fn call(action: &str) -> Call {
    let (verb, _) = verb_and_role(action, "");
    let cancel = "/v1/coupons/{id}/cancel-unpaid".to_owned();
    match verb {
        "show" => ("get", "/v1/jobs/{id}".to_owned(), Value::Null),
        "list" => ("get", "/v1/jobs?limit=100".to_owned(), Value::Null),
        "cancel unpaid" => ("post", cancel, json!({"key": "k", "reason": "wrong price"})),
        "cancel unpaid for another reason" => {
            ("post", cancel, json!({"key": "k", "reason": "another one"}))
        }
        verb => panic!("no action {verb}"),
    }
}

async fn act(app: &TestApp, thing: Thing, action: &str) -> Reply {
    let (_, by) = verb_and_role(action, "");
    ask(app, &thing, call(action), token_of(app, by).as_deref()).await
}
