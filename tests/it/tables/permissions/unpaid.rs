//! All unpaid orders of a coupon, cancelled: by the state of the coupon.

use flash_sale::sale::ids::CouponId;
use serde_json::json;

use super::answers::{Call, Row, Thing, ask, compare, token_of, verb_and_role};
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

/// The word behind a 200 is the status of the order after the next pass.
pub const OF_COUPONS: &[Row] = &[
    (
        "cancel unpaid, by an administrator",
        &[
            ("200 cancelled", "open sold_out paused ended regular regular_paused regular_ended"),
            ("200 paid, unchanged", "open_paid archived regular_paid"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    ("cancel unpaid, by the owner", &[("403 forbidden", ANY)]),
    ("cancel unpaid, by an operator", &[("403 forbidden", ANY)]),
    ("cancel unpaid, by a caller without token", &[("401 invalid_token", ANY)]),
];

#[tokio::test]
async fn unpaid_orders_are_cancelled_in_each_state_of_their_coupon() {
    let app = TestApp::start().await;
    let bring_to = async |state: &str| coupon(&app, state).await;
    let act = async |thing: Thing, action: &str| {
        let mut reply = act(&app, thing, action).await;
        if let (200, Some(order)) = (reply.status, thing.order) {
            app.expire().await;
            reply.body = json!({ "status": app.status(OWNER, order).await });
        }
        reply
    };
    compare(&app, COUPONS, OF_COUPONS, bring_to, act).await;
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

/// The request behind an action.
pub fn call(action: &str) -> Call {
    let (verb, _) = verb_and_role(action, "");
    assert_eq!(verb, "cancel unpaid");
    ("post", "/v1/coupons/{id}/cancel-unpaid".to_owned(), json!({"reason": "wrong price"}))
}

async fn act(app: &TestApp, thing: Thing, action: &str) -> Reply {
    let (_, by) = verb_and_role(action, "");
    ask(app, &thing, call(action), token_of(app, by).as_deref()).await
}
