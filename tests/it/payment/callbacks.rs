//! Confirmations of a gateway: signed, repeated, early and late.

use flash_sale::base::limits;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{SECRET, TestApp};

async fn app() -> TestApp {
    TestApp::configured(&["--payment-callback-secret", SECRET]).await
}

fn payment(id: &str, order: i64) -> Value {
    json!({"kind": "payment", "payment_id": id, "order_id": order.to_string(), "method": 3, "amount_cents": 1})
}

fn refund(id: &str) -> Value {
    json!({"kind": "refund", "payment_id": id})
}

#[tokio::test]
async fn a_gateway_confirms_a_payment_once_however_often_it_says_so() {
    let app = app().await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    let first = app.confirm(&payment("g1", order)).await;
    assert_eq!((first.status, first.text("outcome")), (200, "accepted"));
    assert_eq!(first.body["order"]["status"], "paid");
    assert_eq!(first.body["order"]["pay_method"], "wechat");
    // Only the buyer is told the code, by which anyone is handed the goods.
    assert!(first.body["order"]["redemption_code"].is_null(), "{first:?}");
    assert!(app.show(1, order).await.body["redemption_code"].is_string());
    let notice = payment("g1", order);
    for again in join_all((0..10).map(|_| app.confirm(&notice))).await {
        assert_eq!((again.status, &again.body), (200, &first.body));
    }
    assert_eq!(app.pay(1, order).await.text("pay_method"), "wechat", "it is paid already");
    assert_eq!(app.payments().await, ["paid external accepted"]);
}

#[tokio::test]
async fn notices_that_come_at_one_moment_are_one_payment() {
    let app = app().await;
    let coupon = app.create_flash(20).await;
    for user in 1..=20 {
        let order = app.order(user, coupon).await;
        let notice = payment(&format!("g{user}"), order);
        for reply in join_all((0..5).map(|_| app.confirm(&notice))).await {
            assert_eq!((reply.status, reply.text("outcome")), (200, "accepted"), "{reply:?}");
        }
    }
    assert_eq!(app.number("SELECT count(*) FROM payments").await, 20);
}

#[tokio::test]
async fn without_the_right_signature_nothing_is_believed() {
    let app = app().await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    let body = payment("g1", order).to_string();
    let good = app.confirm(&refund("g1")).await;
    assert_eq!(good.refusal(), (404, "payment_not_found"), "so the signature was right");
    for signature in ["", "00", "none", &"0".repeat(64)] {
        let reply = app.post_signed(body.clone(), signature).await;
        assert_eq!(reply.refusal(), (403, "invalid_signature"), "{signature}");
    }
    // The signature of another body.
    let other = flash_sale::kit::signature::Signatures::new(&SECRET.to_owned().into()).sign(b"{}");
    assert_eq!(app.post_signed(body.clone(), &other).await.refusal(), (403, "invalid_signature"));
    let request = app.client().post(format!("{}/v1/payments/callback", app.url)).body(body);
    let absent = app.send(request, "POST", "/v1/payments/callback").await;
    assert_eq!(absent.refusal(), (403, "invalid_signature"));
    assert_eq!((app.status(1, order).await, app.payments().await.len()), ("unpaid".into(), 0));
}

#[tokio::test]
async fn without_a_secret_there_are_no_callbacks() {
    let app = TestApp::start().await;
    assert_eq!(app.confirm(&refund("g1")).await.refusal(), (404, "callbacks_off"));
}

#[tokio::test]
async fn a_payment_that_comes_too_late_is_handed_back() {
    let app = app().await;
    let coupon = app.create_flash(2).await;
    let cancelled = app.order(1, coupon).await;
    let expired = app.order(2, coupon).await;
    app.cancel(1, cancelled).await;
    app.let_time_pass().await;
    app.expire().await;
    for (id, order, status) in [("g1", cancelled, "cancelled"), ("g2", expired, "expired")] {
        for _ in 0..2 {
            let late = app.confirm(&payment(id, order)).await;
            assert_eq!((late.status, late.text("outcome")), (200, "handed_back"));
            assert_eq!(late.text("reason"), "too_late");
            assert_eq!(late.body["order"]["status"], status);
        }
    }
    assert_eq!(
        app.payments().await,
        ["cancelled external refunding too_late", "expired external refunding too_late"]
    );
    assert_eq!(app.refund_payments().await, 0, "only its gateway can give it back");
    for _ in 0..2 {
        let refunded = app.confirm(&refund("g1")).await;
        assert_eq!((refunded.status, refunded.text("outcome")), (200, "refunded"));
        assert_eq!(refunded.body["order"]["status"], "cancelled", "it stays what it was");
    }
    assert_eq!(app.confirm(&payment("g1", cancelled)).await.text("outcome"), "handed_back");
    assert_eq!(app.payments().await[0], "cancelled external refunded too_late");
}

#[tokio::test]
async fn a_second_payment_is_handed_back() {
    let app = app().await;
    let coupon = app.create_flash(1).await;
    let order = app.paid_order(1, coupon).await;
    let second = app.confirm(&payment("g1", order)).await;
    assert_eq!((second.text("outcome"), second.text("reason")), ("handed_back", "paid_twice"));
    app.act(1, order, "refund").await;
    app.refund_payments().await;
    let third = app.confirm(&payment("g2", order)).await;
    assert_eq!((third.text("outcome"), third.text("reason")), ("handed_back", "paid_twice"));
    assert_eq!(
        app.payments().await,
        [
            "refunded in_process refunded asked_for",
            "refunded external refunding paid_twice",
            "refunded external refunding paid_twice"
        ]
    );
}

#[tokio::test]
async fn a_wrong_amount_pays_nothing() {
    let app = app().await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    for (id, amount) in [("g1", 0), ("g2", 2)] {
        let mut notice = payment(id, order);
        notice["amount_cents"] = json!(amount);
        let reply = app.confirm(&notice).await;
        assert_eq!((reply.text("outcome"), reply.text("reason")), ("handed_back", "wrong_amount"));
    }
    assert_eq!(app.status(1, order).await, "unpaid");
    assert_eq!(app.confirm(&payment("g3", order)).await.text("outcome"), "accepted");
}

#[tokio::test]
async fn another_currency_pays_nothing() {
    let app = app().await;
    let coupon = app.create_flash(2).await;
    let (order, later) = (app.order(1, coupon).await, app.claim(2, coupon).await.order_id());
    let of = |id: &str, order: i64, currency: &str| {
        let mut notice = payment(id, order);
        notice["currency"] = json!(currency);
        notice
    };
    let foreign = app.confirm(&of("g1", order, "EUR")).await;
    assert_eq!((foreign.text("outcome"), foreign.text("reason")), ("handed_back", "wrong_amount"));
    assert_eq!(app.confirm(&of("g2", later, "USD")).await.text("outcome"), "held");
    app.write_orders().await;
    app.execute("UPDATE payments SET next_check_at = now() WHERE next_check_at IS NOT NULL").await;
    app.refund_payments().await;
    assert_eq!(app.status(2, later).await, "unpaid", "it was held in another currency");
    let foreign = "SELECT count(*) FROM payments WHERE currency IN ('USD', 'EUR')";
    assert_eq!(app.number(foreign).await, 2);
    assert_eq!(app.confirm(&of("g3", order, "CNY")).await.text("outcome"), "accepted");
}

#[tokio::test]
async fn a_refund_waits_for_the_gateway_that_has_the_money() {
    let app = app().await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    assert_eq!(app.confirm(&refund("g1")).await.refusal(), (404, "payment_not_found"));
    app.confirm(&payment("g1", order)).await;
    assert_eq!(app.act(1, order, "refund").await.text("status"), "refunding");
    assert_eq!(app.refund_payments().await, 0);
    let of_order = app.get(&format!("/v1/orders/{order}/payments"), &app.admin_token()).await;
    let noted = &of_order.body["payments"][0];
    assert_eq!(noted["asked_at"], Value::Null, "there is no gateway to ask: {of_order:?}");
    assert_eq!((app.status(1, order).await, app.release().await), ("refunding".into(), 0));

    let notice = refund("g1");
    for reply in join_all((0..5).map(|_| app.confirm(&notice))).await {
        assert_eq!((reply.status, reply.text("outcome")), (200, "refunded"));
        assert_eq!(reply.body["order"]["status"], "refunded");
    }
    assert_eq!((app.sold(coupon).await, app.release().await, app.stock(coupon).await), (0, 1, 1));
    assert_eq!(
        app.confirm(&payment("g1", order)).await.text("outcome"),
        "accepted",
        "it was, then"
    );
}

#[tokio::test]
async fn members_that_are_unknown_here_change_nothing() {
    let app = app().await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    let mut notice = payment("g1", order);
    notice["tip"] = json!({"cents": [1, null], "kind": "refund"});
    notice["livemode"] = json!(true);
    let reply = app.confirm(&notice).await;
    assert_eq!((reply.status, reply.text("outcome")), (200, "accepted"), "{reply:?}");
    app.act(1, order, "refund").await;
    let mut notice = refund("g1");
    notice["reason"] = json!("requested_by_customer");
    assert_eq!(app.confirm(&notice).await.text("outcome"), "refunded");
}

/// A gateway can't be corrected, and may have taken money: what it has signed is never thrown away.
#[tokio::test]
async fn a_signed_notice_that_cannot_be_understood_is_held_as_it_was_sent() {
    let app = app().await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    let with = |field: &str, value: Value| {
        let mut notice = payment("g1", order);
        notice[field] = value;
        notice.to_string()
    };
    let notices = [
        with("kind", json!("gift")),
        with("payment_id", json!("")),
        with("payment_id", json!("a\u{0}b")),
        with("payment_id", json!("x".repeat(201))),
        with("order_id", json!(order)),
        with("order_id", json!("0")),
        with("method", json!(0)),
        with("method", json!(4)),
        with("method", json!("wechat")),
        with("amount_cents", json!(-1)),
        with("amount_cents", json!(i64::MAX)),
        with("amount_cents", json!(1)).replace("\"amount_cents\":1", "\"amount_cents\":1e-400"),
        with("currency", json!("cny")),
        with("currency", json!("EURO")),
        with("currency", json!("")),
        with("currency", json!(156)),
        json!({"kind": "refund"}).to_string(),
        json!(["payment", "g1"]).to_string(),
        json!({}).to_string(),
        r#"{"kind":"refund","payment_id":"g1","payment_id":"g2"}"#.to_owned(),
        "{".to_owned(),
        String::new(),
    ];
    for notice in notices.iter().chain(&notices) {
        let reply = app.confirm_text(notice.clone()).await;
        let told = (reply.status, reply.text("outcome"), reply.text("reason"));
        assert_eq!(told, (200, "held", "not_understood"), "{notice}");
        assert!(reply.body["order"].is_null());
    }
    let held = app.waiting("held_payment").await;
    assert_eq!(held.len(), notices.len(), "each once: {held:?}");
    let words = held.last().map(|first| first["detail"].as_str().expect("a text"));
    assert!(words.is_some_and(|words| words.ends_with(&notices[0])), "as it was sent: {words:?}");

    app.app.numbers.run_once().await.expect("the stores answer");
    let alarmed = format!("flash_sale_payments_owed{{status=\"held\"}} {}", notices.len());
    assert!(app.app.metrics.page().contains(&alarmed), "by the alarm PaymentHeld");

    app.refund_payments().await;
    let id = held[0]["id"].as_str().expect("an id");
    let path = |what: &str| format!("/v1/payments/{id}/{what}");
    let handed = app.post(&path("hand-back"), &app.admin_token(), &json!({})).await;
    assert_eq!(handed.refusal(), (409, "notice_not_understood"));
    let note = json!({"note": "the gateway's new kind of notice; no money"});
    assert_eq!(app.post(&path("close"), &app.admin_token(), &note).await.status, 204);
    assert_eq!(app.waiting("held_payment").await.len(), notices.len() - 1);
    assert_eq!(app.status(1, order).await, "unpaid");
}

#[tokio::test]
async fn a_notice_that_is_too_large_is_refused() {
    let app = app().await;
    let large = app.post_signed("x".repeat(limits::BODY_BYTES_MAX + 1), "").await;
    assert_eq!(large.refusal(), (413, "body_too_large"));
}
