//! Orders by state: the answer to each action.

use flash_sale::sale::order::model::OrderStatus;
use serde_json::{Value, json};

use super::answers::{
    Call, Row, Thing, ask, compare, in_review, notice_of, token_of, verb_and_role,
};
use super::{MISSING, OWNER};
use crate::support::{Reply, SECRET, TestApp};

/// The statuses of an order, with two for `cancelled`: `leaving` before its unit has come back, `cancelled` after.
/// Then claims without a row: `none` is no claim at all, `pending` stands last because any write pass ends it.
const STATES: &[&str] = &[
    "unpaid",
    "paid",
    "redeemed",
    "leaving",
    "cancelled",
    "expired",
    "refunding",
    "refunded",
    "in_review",
    "none",
    "pending",
];
const ALL: &str =
    "unpaid paid redeemed leaving cancelled expired refunding refunded in_review none pending";
const NO_ROW: &str = "in_review none pending";

pub const ANSWERS: &[Row] = &[
    (
        "show",
        &[
            ("200 unpaid, unchanged", "unpaid"),
            ("200 paid, unchanged", "paid"),
            ("200 redeemed, unchanged", "redeemed"),
            ("200 cancelled, unchanged", "leaving cancelled"),
            ("200 expired, unchanged", "expired"),
            ("200 refunding, unchanged", "refunding"),
            ("200 refunded, unchanged", "refunded"),
            ("404 order_not_found", NO_ROW),
        ],
    ),
    (
        "show, by an administrator",
        &[
            ("200 unpaid, unchanged", "unpaid"),
            ("200 paid, unchanged", "paid"),
            ("200 redeemed, unchanged", "redeemed"),
            ("200 cancelled, unchanged", "leaving cancelled"),
            ("200 expired, unchanged", "expired"),
            ("200 refunding, unchanged", "refunding"),
            ("200 refunded, unchanged", "refunded"),
            ("404 order_not_found", NO_ROW),
        ],
    ),
    (
        "pay",
        &[
            ("200 paid", "unpaid"),
            ("200 paid, unchanged", "paid"),
            ("200 redeemed, unchanged", "redeemed"),
            ("409 invalid_transition", "leaving cancelled expired refunding refunded"),
            ("404 order_not_found", NO_ROW),
        ],
    ),
    (
        "cancel",
        &[
            ("200 cancelled", "unpaid"),
            ("200 cancelled, unchanged", "leaving cancelled"),
            ("409 invalid_transition", "paid redeemed expired refunding refunded"),
            ("404 order_not_found", NO_ROW),
        ],
    ),
    (
        "refund",
        &[
            ("200 refunding", "paid"),
            ("200 refunding, unchanged", "refunding"),
            ("200 refunded, unchanged", "refunded"),
            ("409 invalid_transition", "unpaid redeemed leaving cancelled expired"),
            ("404 order_not_found", NO_ROW),
        ],
    ),
    (
        "redeem, by an administrator",
        &[
            ("200 redeemed", "paid"),
            ("409 already_redeemed", "redeemed"),
            ("409 invalid_transition", "unpaid leaving cancelled expired refunding refunded"),
            ("404 order_not_found", NO_ROW),
        ],
    ),
    (
        "confirm, by the gateway",
        &[
            ("200 accepted", "unpaid"),
            ("200 handed_back paid_twice", "paid redeemed refunding refunded"),
            ("200 handed_back too_late", "leaving cancelled expired"),
            ("200 held unknown_order", NO_ROW),
        ],
    ),
    (
        "claim",
        &[
            ("202 pending", "cancelled expired refunded none"),
            ("409 already_claimed", "unpaid paid redeemed leaving refunding in_review pending"),
        ],
    ),
    (
        "claims/me",
        &[
            ("200 unpaid, unchanged", "unpaid"),
            ("200 paid, unchanged", "paid"),
            ("200 redeemed, unchanged", "redeemed"),
            ("200 cancelled, unchanged", "leaving cancelled"),
            ("200 expired, unchanged", "expired"),
            ("200 refunding, unchanged", "refunding"),
            ("200 refunded, unchanged", "refunded"),
            ("200 in_review, unchanged", "in_review"),
            ("200 pending, unchanged", "pending"),
            ("404 not_claimed", "none"),
        ],
    ),
    (
        "cancel-for-buyer, by an administrator",
        &[
            ("200 cancelled", "unpaid"),
            ("200 cancelled, unchanged", "leaving cancelled"),
            ("409 invalid_transition", "paid redeemed expired refunding refunded"),
            ("404 order_not_found", NO_ROW),
        ],
    ),
    (
        "refund-for-buyer, by an administrator",
        &[
            ("200 refunding", "paid"),
            ("200 refunding, unchanged", "refunding"),
            ("200 refunded, unchanged", "refunded"),
            ("409 invalid_transition", "unpaid redeemed leaving cancelled expired"),
            ("404 order_not_found", NO_ROW),
        ],
    ),
    // An order has its code from its payment on, and shows it while it is paid.
    (
        "qr",
        &[
            ("200, unchanged", "paid"),
            (
                "409 no_redemption_code",
                "unpaid redeemed leaving cancelled expired refunding refunded",
            ),
            ("404 order_not_found", NO_ROW),
        ],
    ),
    (
        "look up the code, by a clerk",
        &[
            ("200 paid, unchanged", "paid"),
            ("200 redeemed, unchanged", "redeemed"),
            ("200 refunding, unchanged", "refunding"),
            ("200 refunded, unchanged", "refunded"),
            (
                "404 redemption_code_unknown",
                "unpaid leaving cancelled expired in_review none pending",
            ),
        ],
    ),
    (
        "redeem the code, by a clerk",
        &[
            ("200 redeemed", "paid"),
            ("409 already_redeemed", "redeemed"),
            ("409 invalid_transition", "refunding refunded"),
            (
                "404 redemption_code_unknown",
                "unpaid leaving cancelled expired in_review none pending",
            ),
        ],
    ),
    ("cancel-for-buyer", &[("403 forbidden", ALL)]),
    ("cancel-for-buyer, by an operator", &[("403 forbidden", ALL)]),
    ("refund-for-buyer", &[("403 forbidden", ALL)]),
    ("refund-for-buyer, by an operator", &[("403 forbidden", ALL)]),
    ("look up the code", &[("403 forbidden", ALL)]),
    ("redeem the code", &[("403 forbidden", ALL)]),
    // Orders of other users don't exist for a user, in any status.
    ("qr, by another user", &[("404 order_not_found", ALL)]),
    ("qr, by an administrator", &[("404 order_not_found", ALL)]),
    ("show, by another user", &[("404 order_not_found", ALL)]),
    ("pay, by another user", &[("404 order_not_found", ALL)]),
    ("cancel, by another user", &[("404 order_not_found", ALL)]),
    ("refund, by another user", &[("404 order_not_found", ALL)]),
    ("claims/me, by another user", &[("404 not_claimed", ALL)]),
    ("pay, by an administrator", &[("404 order_not_found", ALL)]),
    ("cancel, by an administrator", &[("404 order_not_found", ALL)]),
    ("refund, by an administrator", &[("404 order_not_found", ALL)]),
    ("redeem", &[("403 forbidden", ALL)]),
    ("redeem, by another user", &[("403 forbidden", ALL)]),
    ("redeem, by a caller without token", &[("401 invalid_token", ALL)]),
    ("cancel, by a caller without token", &[("401 invalid_token", ALL)]),
];

#[test]
fn each_status_of_an_order_is_a_state() {
    let missing = OrderStatus::ALL.map(OrderStatus::as_str);
    let missing: Vec<_> = missing.iter().filter(|status| !STATES.contains(status)).collect();
    assert!(missing.is_empty(), "not in the table: {missing:?}");
}

#[tokio::test]
async fn each_action_on_an_order_is_answered_by_its_state() {
    let app = TestApp::configured(&["--payment-callback-secret", SECRET]).await;
    let bring_to = async |state: &str| order(&app, state).await;
    let act = async |thing, action: &str| act(&app, thing, action).await;
    compare(&app, STATES, ANSWERS, bring_to, act).await;
}

/// The owner's order of a new sale, in this state.
async fn order(app: &TestApp, state: &str) -> Thing {
    let coupon = app.create_flash(2).await;
    let id = match state {
        "none" => MISSING,
        "pending" => app.claim(OWNER, coupon).await.order_id(),
        "in_review" => in_review(app, OWNER, coupon).await,
        "unpaid" | "leaving" | "cancelled" | "expired" => app.order(OWNER, coupon).await,
        _ => app.paid_order(OWNER, coupon).await,
    };
    match state {
        "redeemed" => assert_eq!(app.redeem(id).await.status, 200),
        "leaving" | "cancelled" => assert_eq!(app.cancel(OWNER, id).await.status, 200),
        "refunding" | "refunded" => assert_eq!(app.act(OWNER, id, "refund").await.status, 200),
        "expired" => {
            app.let_time_pass_for(id).await;
            assert_eq!(app.expire().await, 1);
        }
        _ => {}
    }
    if state == "refunded" {
        assert!(app.refund_payments().await > 0);
    }
    if ["cancelled", "expired", "refunded"].contains(&state) {
        app.give_back().await;
        assert_eq!(app.stock(coupon).await, 2);
    }
    Thing { id, coupon: Some(coupon), order: Some(id) }
}

/// Code of no order.
const CODE_OF_NONE: &str = "0000000000000000";

/// The request behind an action.
pub fn call(action: &str) -> Call {
    let (verb, _) = verb_and_role(action, "the owner");
    let body = match verb {
        "pay" => json!({"method": "balance"}),
        "cancel-for-buyer" | "refund-for-buyer" => json!({"reason": "asked to"}),
        _ => Value::Null,
    };
    let (method, path) = match verb {
        "show" => ("get", "/v1/orders/{id}"),
        "qr" => ("get", "/v1/orders/{id}/qr"),
        "claims/me" => ("get", "/v1/coupons/{id}/claims/me"),
        "claim" => ("post", "/v1/coupons/{id}/claims"),
        "confirm" => ("post", "/v1/payments/callback"),
        "look up the code" => ("get", "/v1/redemptions/{code}"),
        "redeem the code" => ("post", "/v1/redemptions"),
        verb => return ("post", format!("/v1/orders/{{id}}/{verb}"), body),
    };
    (method, path.to_owned(), body)
}

async fn act(app: &TestApp, thing: Thing, action: &str) -> Reply {
    let (_, by) = verb_and_role(action, "the owner");
    if by == "the gateway" {
        return app.confirm(&notice_of(thing.id)).await;
    }
    let (method, mut path, mut body) = call(action);
    if path.starts_with("/v1/redemptions") {
        let order = thing.id;
        let code = format!("SELECT code FROM redemptions WHERE order_id = {order}");
        let code = app.texts(&code).await.pop().unwrap_or_else(|| CODE_OF_NONE.to_owned());
        path = path.replace("{code}", &code);
        body = if method == "post" { json!({ "code": code }) } else { Value::Null };
    }
    ask(app, &thing, (method, path, body), token_of(app, by).as_deref()).await
}
