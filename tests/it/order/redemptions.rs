//! Redeeming: once, by one clerk, by the code that the buyer shows.

use futures_util::future::join_all;
use serde_json::json;

use crate::support::{Reply, TestApp, admin_token_of};

async fn redeem_code(app: &TestApp, clerk: i64, code: &str) -> Reply {
    app.post("/v1/redemptions", &admin_token_of(clerk), &json!({ "code": code })).await
}

#[tokio::test]
async fn the_second_clerk_is_told_the_first_and_the_time() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    let order = app.paid_order(1, coupon).await;
    let (first, second) = (admin_token_of(7), admin_token_of(8));
    let blank = app.redeem_under(&first, order, Some("till 1")).await;
    assert_eq!(blank.refusal(), (400, "invalid_idempotency_key"));
    let redeemed = app.redeem_under(&first, order, Some("till-1")).await;
    assert_eq!((redeemed.status, redeemed.text("status")), (200, "redeemed"));
    // The same request once more: its answer may have got lost.
    assert_eq!(app.redeem_under(&first, order, Some("till-1")).await.body, redeemed.body);
    for (token, key) in
        [(&second, None), (&second, Some("till-1")), (&first, None), (&first, Some("till-2"))]
    {
        let refused = app.redeem_under(token, order, key).await;
        assert_eq!(refused.refusal(), (409, "already_redeemed"), "{key:?}");
        assert_eq!(refused.body["redeemed_at"], redeemed.body["redeemed_at"]);
        assert_eq!(refused.text("redeemed_by"), "7");
        assert!(refused.text("detail").contains("by clerk 7"), "{refused:?}");
    }
    assert_eq!(app.show(1, order).await.body, redeemed.body);
    let noted = "SELECT count(*) FROM redemptions WHERE clerk = 7 AND key = 'till-1'";
    assert_eq!(app.number(noted).await, 1);
}

#[tokio::test]
async fn of_clerks_at_one_moment_one_redeems() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1).await;
    let order = app.paid_order(1, coupon).await;
    let code = app.code(1, order).await;
    let replies = join_all((1..=20).map(|clerk| redeem_code(&app, clerk, &code))).await;
    let won: Vec<usize> = (0..20).filter(|at| replies[*at].status == 200).collect();
    assert_eq!(won.len(), 1, "{won:?}");
    let clerk = (won[0] + 1).to_string();
    for refused in replies.iter().filter(|reply| reply.status != 200) {
        assert_eq!(refused.refusal(), (409, "already_redeemed"));
        assert_eq!(refused.text("redeemed_by"), clerk);
    }
}

#[tokio::test]
async fn a_paid_order_has_a_code_for_its_buyer() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(3).await;
    let unpaid = app.order(1, coupon).await;
    assert!(app.show(1, unpaid).await.body["redemption_code"].is_null());
    let path = format!("/v1/orders/{unpaid}/qr");
    assert_eq!(app.get(&path, &app.token(1)).await.refusal(), (409, "no_redemption_code"));
    let paid = app.pay(1, unpaid).await;
    let code = paid.text("redemption_code").to_owned();
    let groups: Vec<&str> = code.split('-').collect();
    assert!(groups.len() == 4 && groups.iter().all(|group| group.len() == 4), "{code}");
    assert_eq!(app.code(1, unpaid).await, code);
    let list = app.get("/v1/orders", &app.token(1)).await;
    assert_eq!(list.body["orders"][0]["redemption_code"], code);
    let other = app.paid_order(2, coupon).await;
    assert_ne!(app.code(2, other).await, code);

    let picture = app.get(&path, &app.token(1)).await;
    assert_eq!((picture.status, picture.header("content-type")), (200, "image/svg+xml"));
    assert!(picture.body.as_str().is_some_and(|svg| svg.contains("<svg")), "{picture:?}");

    // As people type it. A look changes nothing.
    let typed = format!(" {} ", code.to_lowercase().replace('-', ""));
    let path = format!("/v1/redemptions/{}", typed.trim());
    let found = app.get(&path, &app.admin_token()).await;
    assert_eq!((found.status, found.text("status")), (200, "paid"));
    let redeemed = redeem_code(&app, 7, &typed).await;
    assert_eq!((redeemed.status, redeemed.text("order_id")), (200, &*unpaid.to_string()));
    assert!(redeemed.body["redemption_code"].is_null(), "it is used up");
    assert_eq!(redeem_code(&app, 8, &code).await.refusal(), (409, "already_redeemed"));
}

#[tokio::test]
async fn a_code_of_no_order_is_unknown() {
    let app = TestApp::start().await;
    let long = "7".repeat(64);
    let id = i64::MAX.to_string();
    for code in ["7K3M-Q9TX-2B8D-HV4N", "-", "\0", "' OR true --", "\u{202e}", &long, &id] {
        let refused = redeem_code(&app, 7, code).await;
        assert_eq!(refused.refusal(), (404, "redemption_code_unknown"), "{code:?}");
    }
    for body in
        [json!({}), json!({"code": ""}), json!({"code": 7}), json!({"code": "7".repeat(65)})]
    {
        let reply = app.post("/v1/redemptions", &app.admin_token(), &body).await;
        assert_eq!(reply.refusal(), (422, "invalid_body"), "{body}");
    }
}

#[tokio::test]
async fn money_that_was_charged_back_buys_nothing() {
    let app = TestApp::configured(&["--payment-callback-secret", crate::support::SECRET]).await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    let payment = json!({"kind": "payment", "payment_id": "g", "order_id": order.to_string(), "method": 2, "amount_cents": 1});
    assert_eq!(app.confirm(&payment).await.text("outcome"), "accepted");
    let code = app.code(1, order).await;
    let refund = json!({"kind": "refund", "payment_id": "g"});
    assert_eq!(app.confirm(&refund).await.text("outcome"), "charged_back");
    let refused = redeem_code(&app, 7, &code).await;
    assert_eq!(
        (refused.refusal(), refused.text("from")),
        ((409, "invalid_transition"), "refunded")
    );
    assert!(app.show(1, order).await.body["redemption_code"].is_null());
}
