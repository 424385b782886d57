//! Payments by status and reason: the answers to the staff and to the gateway, and the order's status after each.

use serde_json::{Value, json};

use super::answers::{Call, Row, Thing, ask, compare, notice_of, token_of, verb_and_role};
use super::{MISSING, OTHER, OWNER};
use crate::support::{Reply, SECRET, TestApp};

/// `accepted` has paid its order. The next five go back, each for its reason: `handed_back` was held for an order that
/// isn't there. Four are held: `charged_back` has paid an order that is redeemed, and `kept_unit` one that keeps its unit.
/// The last two were asked for, and are back or closed.
const STATES: &[&str] = &[
    "accepted",
    "asked_for",
    "paid_twice",
    "too_late",
    "wrong_amount",
    "handed_back",
    "unknown_order",
    "id_used_twice",
    "charged_back",
    "kept_unit",
    "refunded",
    "closed",
    "none",
];
const ALL: &str = "accepted asked_for paid_twice too_late wrong_amount handed_back unknown_order id_used_twice \
                   charged_back kept_unit refunded closed none";

/// The word behind a 204 is the status of the order, if there is one.
pub const ANSWERS: &[Row] = &[
    (
        "hand-back, by an operator",
        &[
            ("204", "unknown_order"),
            ("204, unchanged", "handed_back"),
            ("204 refunding, unchanged", "asked_for"),
            ("204 paid, unchanged", "paid_twice"),
            ("204 cancelled, unchanged", "too_late"),
            ("204 unpaid, unchanged", "wrong_amount"),
            ("204 refunded, unchanged", "refunded"),
            ("409 payment_id_used_twice", "id_used_twice"),
            ("409 payment_charged_back", "charged_back kept_unit"),
            ("409 payment_settled", "accepted closed"),
            ("404 payment_not_found", "none"),
        ],
    ),
    (
        "close, by an administrator",
        &[
            ("204", "unknown_order handed_back"),
            ("204 refunded", "asked_for kept_unit"),
            ("204 paid", "paid_twice"),
            ("204 cancelled", "too_late"),
            ("204 unpaid", "wrong_amount id_used_twice"),
            ("204 redeemed", "charged_back"),
            ("204 refunded, unchanged", "closed"),
            ("409 payment_settled", "accepted refunded"),
            ("404 payment_not_found", "none"),
        ],
    ),
    // A gateway has never heard of the id under which the second payment is kept.
    (
        "refund, by the gateway",
        &[
            ("200 charged_back", "accepted"),
            ("200 charged_back, unchanged", "charged_back kept_unit"),
            (
                "200 refunded",
                "asked_for paid_twice too_late wrong_amount handed_back unknown_order",
            ),
            ("200 refunded, unchanged", "refunded closed"),
            ("200 held not_understood", "id_used_twice"),
            ("404 payment_not_found", "none"),
        ],
    ),
    ("hand-back, by the owner", &[("403 forbidden", ALL)]),
    ("hand-back, by a clerk", &[("403 forbidden", ALL)]),
    ("hand-back, by a caller without token", &[("401 invalid_token", ALL)]),
    ("close, by the owner", &[("403 forbidden", ALL)]),
    ("close, by an operator", &[("403 forbidden", ALL)]),
    ("close, by a caller without token", &[("401 invalid_token", ALL)]),
];

#[tokio::test]
async fn each_action_on_a_payment_is_answered_by_its_status_and_reason() {
    let arguments = ["--payment-callback-secret", SECRET, "--chargeback-keeps-unit"];
    let app = TestApp::configured(&arguments).await;
    let bring_to = async |state: &str| payment(&app, state).await;
    let act = async |thing, action: &str| act(&app, thing, action).await;
    compare(&app, STATES, ANSWERS, bring_to, act).await;
}

/// A payment for the owner's order of a new sale, in this state.
async fn payment(app: &TestApp, state: &str) -> Thing {
    if state == "none" {
        return Thing { id: MISSING, coupon: None, order: None };
    }
    let coupon = app.create_flash(2).await;
    let is_there = !["handed_back", "unknown_order"].contains(&state);
    let order = if is_there { app.order(OWNER, coupon).await } else { coupon.get() };
    let mut notice = notice_of(order);
    match state {
        "paid_twice" => assert_eq!(app.pay(OWNER, order).await.status, 200),
        "too_late" => assert_eq!(app.cancel(OWNER, order).await.status, 200),
        "wrong_amount" => notice["amount_cents"] = json!(7),
        "id_used_twice" => {
            let first = notice_of(app.order(OTHER, coupon).await);
            assert_eq!(app.confirm(&first).await.text("outcome"), "accepted");
            notice["payment_id"] = first["payment_id"].clone();
        }
        _ => {}
    }
    assert_eq!(app.confirm(&notice).await.status, 200);
    let id = app.number("SELECT max(id) FROM payments").await;
    let payment = Thing { id, coupon: Some(coupon), order: is_there.then_some(order) };
    let moved = match state {
        "asked_for" | "refunded" | "closed" => app.act(OWNER, order, "refund").await.status,
        "charged_back" => app.redeem(order).await.status,
        _ => 200,
    };
    assert_eq!(moved, 200, "{state}");
    let settled = match state {
        "handed_back" => act(app, payment, "hand-back, by an operator").await.status,
        "charged_back" | "kept_unit" | "refunded" => {
            act(app, payment, "refund, by the gateway").await.status
        }
        "closed" => act(app, payment, "close, by an administrator").await.status,
        _ => 200,
    };
    assert!([200, 204].contains(&settled), "{state}: {settled}");
    payment
}

/// The request behind an action.
pub fn call(action: &str) -> Call {
    let (verb, _) = verb_and_role(action, "");
    match verb {
        "refund" => ("post", "/v1/payments/callback".to_owned(), Value::Null),
        "close" => ("post", "/v1/payments/{id}/close".to_owned(), json!({"note": "sent by hand"})),
        verb => ("post", format!("/v1/payments/{{id}}/{verb}"), Value::Null),
    }
}

async fn act(app: &TestApp, thing: Thing, action: &str) -> Reply {
    let (_, by) = verb_and_role(action, "");
    if by == "the gateway" {
        let name = format!("SELECT gateway_payment_id FROM payments WHERE id = {}", thing.id);
        let name = app.texts(&name).await.pop().unwrap_or_else(|| "none".to_owned());
        return app.confirm(&json!({"kind": "refund", "payment_id": name})).await;
    }
    let mut reply = ask(app, &thing, call(action), token_of(app, by).as_deref()).await;
    if let (204, Some(order)) = (reply.status, thing.order) {
        let status = format!("SELECT status FROM orders WHERE id = {order}");
        reply.body = json!({ "status": app.texts(&status).await.pop() });
    }
    reply
}
