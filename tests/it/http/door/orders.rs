//! Orders of users, and what the staff is told of them.

use chrono::TimeDelta;
use flash_sale::kit::signature::Signatures;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::{code, door, request, told, with_body, with_header, with_text};
use crate::support::{SECRET, TestApp, admin_token, now, token};

#[tokio::test]
async fn the_staff_is_told_that_there_is_no_such_order_and_a_user_that_it_is_not_theirs() {
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    let reason = json!({"reason": "ill"});
    let (theirs, none) = ("you have no order with this id", "there is no order with this id");
    for (path, token, body, words) in [
        ("cancel", token(42), Value::Null, theirs),
        ("refund", token(42), Value::Null, theirs),
        ("pay", token(42), json!({"method": "balance"}), theirs),
        ("cancel-for-buyer", admin_token(), reason.clone(), none),
        ("refund-for-buyer", admin_token(), reason, none),
        ("redeem", admin_token(), Value::Null, theirs),
    ] {
        let path = format!("/v1/orders/7/{path}");
        let reply = told(&door, with_body("POST", &path, &token, &body)).await;
        assert_eq!(reply.refusal(), (404, "order_not_found"), "{path}");
        assert!(reply.text("detail").starts_with(words), "{path}: {reply:?}");
    }
}

/// An administrator who moves an order for its buyer isn't told its code.
#[tokio::test]
async fn a_move_for_a_buyer_tells_no_code() {
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    let coupon = app.create_flash(2).await;
    let (unpaid, paid) = (app.order(1, coupon).await, app.paid_order(2, coupon).await);
    for (order, verb, from) in
        [(unpaid, "refund-for-buyer", "unpaid"), (paid, "cancel-for-buyer", "paid")]
    {
        let path = format!("/v1/orders/{order}/{verb}");
        let refused =
            told(&door, with_body("POST", &path, &admin_token(), &json!({"reason": "x"})));
        let refused = refused.await;
        assert_eq!(refused.refusal(), (409, "invalid_transition"), "{path}");
        assert_eq!(refused.text("from"), from, "{path}");
    }
    let path = format!("/v1/orders/{unpaid}/cancel-for-buyer");
    let moved =
        told(&door, with_body("POST", &path, &admin_token(), &json!({"reason": "x"}))).await;
    assert_eq!((moved.status, moved.text("status")), (200, "cancelled"));
    let path = format!("/v1/orders/{paid}/refund-for-buyer");
    let moved =
        told(&door, with_body("POST", &path, &admin_token(), &json!({"reason": "x"}))).await;
    assert_eq!((moved.status, &moved.body["redemption_code"]), (200, &Value::Null), "{moved:?}");
}

/// Payments of an order are listed, of at most a hundred, also without the order; an order without any has an empty list.
#[tokio::test]
async fn payments_of_an_order_are_listed_whether_it_is_there_or_not() {
    const WITHOUT_ORDER: i64 = 7;
    let app = TestApp::start().await;
    app.expect_disagreements();
    let door = door(&app, |_| {});
    let coupon = app.create_flash(2).await;
    let (unpaid, paid) = (app.order(1, coupon).await, app.paid_order(2, coupon).await);
    app.execute(&format!(
        "INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason)
         SELECT {WITHOUT_ORDER}, 'external', 'p' || n, 'balance', n, 'refunding', 'too_late'
         FROM generate_series(1, 101) AS n"
    ))
    .await;
    for (order, payments) in [(unpaid, 0), (paid, 1), (WITHOUT_ORDER, 100)] {
        let path = format!("/v1/orders/{order}/payments");
        let listed = told(&door, request("GET", &path, &admin_token())).await;
        assert_eq!(listed.status, 200, "{listed:?}");
        let found = listed.body["payments"].as_array().expect("a list");
        assert_eq!((found.len(), listed.text("order_id")), (payments, &*order.to_string()));
    }
    let unknown = told(&door, request("GET", "/v1/orders/8/payments", &admin_token())).await;
    assert_eq!(unknown.refusal(), (404, "order_not_found"));
    assert!(unknown.text("detail").contains("no payment for it"), "{unknown:?}");
}

/// A notice is believed by its signature, whose form depends on whether the gateway takes requests, too.
#[tokio::test]
async fn a_notice_of_the_gateway_is_believed_by_its_signature() {
    let app = TestApp::without_in_process_gateway(&[]).await;
    let secret = SecretString::from(SECRET);
    let plain = door(&app, |config| config.payment_callback_secret = Some(secret.clone()));
    let stamped = door(&app, |config| {
        config.payment_callback_secret = Some(secret.clone());
        config.gateway_url = Some("http://127.0.0.1:1/".parse().expect("a URL"));
    });
    let off = door(&app, |config| config.payment_callback_secret = None);
    let notice = json!({"kind": "refund", "payment_id": "none"}).to_string();
    let signatures = Signatures::new(&secret);
    let (sign, stamp) =
        (signatures.sign(notice.as_bytes()), signatures.stamp(notice.as_bytes(), now()));
    let old = signatures.stamp(notice.as_bytes(), now() - TimeDelta::hours(1));
    let (unsigned, unknown) = ("invalid_signature", "payment_not_found");
    for (signature, codes) in [
        (&*sign, [unknown, unsigned, "callbacks_off"]),
        (&stamp, [unknown, unknown, "callbacks_off"]),
        (&old, [unsigned, unsigned, "callbacks_off"]),
        ("00", [unsigned, unsigned, "callbacks_off"]),
        ("", [unsigned, unsigned, "callbacks_off"]),
    ] {
        for (door, expected) in [&plain, &stamped, &off].into_iter().zip(codes) {
            let sent = with_text("POST", "/v1/payments/callback", "", &notice);
            let sent = if signature.is_empty() {
                sent
            } else {
                with_header(sent, "x-signature", signature)
            };
            let reply = told(door, sent).await;
            assert_eq!(code(&reply), expected, "{signature:?}: {reply:?}");
        }
    }
    for (door, form) in [
        (&plain, "send the header `X-Signature`: HMAC-SHA256 of the body"),
        (&stamped, "send the header `X-Signature: t=<seconds since 1970>,v1="),
    ] {
        let reply = told(door, with_text("POST", "/v1/payments/callback", "", &notice)).await;
        assert!(reply.text("detail").starts_with(form), "{reply:?}");
    }
}
