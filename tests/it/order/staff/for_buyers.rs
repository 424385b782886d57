//! Orders that an administrator cancels or refunds for their buyers.

use serde_json::{Value, json};

use crate::support::{Reply, TestApp, admin_token_of};

async fn act(app: &TestApp, order: i64, verb: &str, body: &Value) -> Reply {
    let path = format!("/v1/orders/{order}/{verb}-for-buyer");
    app.post(&path, &admin_token_of(7), body).await
}

async fn book(app: &TestApp, order: i64) -> Vec<Value> {
    let path = format!("/v1/audit?subject={order}");
    app.get(&path, &app.admin_token()).await.body["entries"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn an_unpaid_order_is_cancelled_for_its_buyer_with_a_reason() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    let (order, paid) = (app.order(1, coupon).await, app.paid_order(2, coupon).await);
    let because = json!({"reason": "the buyer has called"});
    for _ in 0..2 {
        let reply = act(&app, order, "cancel", &because).await;
        assert_eq!((reply.status, reply.text("status")), (200, "cancelled"));
    }
    let entries = book(&app, order).await;
    assert_eq!(entries.len(), 1, "the repeat has changed nothing: {entries:#?}");
    assert_eq!(
        (&entries[0]["action"], &entries[0]["actor"]),
        (&json!("cancel_order"), &json!("7"))
    );
    assert_eq!(entries[0]["before"], json!({"status": "unpaid"}));
    let after = json!({"status": "cancelled", "reason": "the buyer has called"});
    assert_eq!(entries[0]["after"], after);
    assert_eq!((app.release().await, app.stock(coupon).await), (1, 1));
    let refused = act(&app, paid, "cancel", &because).await;
    assert_eq!(refused.refusal(), (409, "invalid_transition"));
    assert_eq!(book(&app, paid).await, [] as [Value; 0]);
    // The buyer's own cancellation has no entry.
    let own = app.order(3, coupon).await;
    assert_eq!(app.cancel(3, own).await.status, 200);
    assert_eq!(book(&app, own).await, [] as [Value; 0]);
}

#[tokio::test]
async fn a_paid_order_is_refunded_for_its_buyer_with_a_reason() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    let (order, unpaid) = (app.paid_order(1, coupon).await, app.order(2, coupon).await);
    let because = json!({"reason": "the kitchen is closed"});
    for _ in 0..2 {
        let reply = act(&app, order, "refund", &because).await;
        assert_eq!((reply.status, reply.text("status")), (200, "refunding"));
        assert!(reply.body["redemption_code"].is_null(), "{reply:?}");
    }
    assert_eq!((app.refund_payments().await, app.status(1, order).await), (1, "refunded".into()));
    let entries = book(&app, order).await;
    assert_eq!(entries.len(), 1, "{entries:#?}");
    assert_eq!(entries[0]["action"], "refund_order");
    let after = json!({"status": "refunding", "reason": "the kitchen is closed"});
    assert_eq!((&entries[0]["before"], &entries[0]["after"]), (&json!({"status": "paid"}), &after));
    let refused = act(&app, unpaid, "refund", &because).await;
    assert_eq!(refused.refusal(), (409, "invalid_transition"));
    assert_eq!(act(&app, unpaid + 1, "refund", &because).await.refusal(), (404, "order_not_found"));
}
