//! Money that no order can take, and money that a gateway takes back: each is a row, and none is forgotten.

use flash_sale::store::ids::CouponId;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{Bounded, Reply, SECRET, TestApp};

async fn app() -> TestApp {
    TestApp::configured(&["--payment-callback-secret", SECRET]).await
}

fn payment(id: &str, order: i64, amount_cents: i64) -> Value {
    json!({"kind": "payment", "payment_id": id, "order_id": order.to_string(), "method": 3,
           "amount_cents": amount_cents})
}

fn refund(id: &str) -> Value {
    json!({"kind": "refund", "payment_id": id})
}

/// Outcome and reason of a notice that has to be answered 200.
async fn told(app: &TestApp, notice: &Value) -> (String, String) {
    let reply = app.confirm(notice).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let reason = reply.body["reason"].as_str().unwrap_or("").to_owned();
    (reply.text("outcome").to_owned(), reason)
}

fn words(outcome: &str, reason: &str) -> (String, String) {
    (outcome.to_owned(), reason.to_owned())
}

/// The payments that wait: id, status and reason.
async fn owed(app: &TestApp) -> Vec<(String, String, String)> {
    let mut owed = Vec::new();
    for (kind, status) in [("held_payment", "held"), ("refund", "refunding")] {
        for one in app.waiting(kind).await {
            let text = |name: &str| one[name].as_str().expect("a text").to_owned();
            owed.push((text("id"), status.to_owned(), text("reason")));
        }
    }
    owed
}

async fn settle(app: &TestApp, payment: &str, how: &str) -> Reply {
    let path = format!("/v1/payments/{payment}/{how}");
    let body = if how == "close" { json!({"note": "sent by hand"}) } else { json!({}) };
    app.post(&path, &app.admin_token(), &body).await
}

#[tokio::test]
async fn a_payment_for_an_order_that_is_not_written_yet_waits_for_it() {
    let app = app().await;
    let coupon = app.create_flash(2).await;
    let order = app.claim(1, coupon).await.order_id();
    let notice = payment("g1", order, 1);
    for reply in join_all((0..5).map(|_| app.confirm(&notice))).await {
        assert_eq!((reply.text("outcome"), reply.text("reason")), ("held", "unknown_order"));
        assert_eq!(reply.body["order"], Value::Null);
    }
    let wrong = app.claim(2, coupon).await.order_id();
    assert_eq!(told(&app, &payment("g2", wrong, 7)).await, words("held", "unknown_order"));
    app.refund_payments().await;
    assert_eq!(owed(&app).await.len(), 2, "neither is there yet");

    app.write_orders().await;
    check_held(&app).await;
    assert_eq!(
        (app.status(1, order).await, app.status(2, wrong).await),
        ("paid".into(), "unpaid".into())
    );
    assert_eq!(
        app.payments().await,
        ["paid external accepted", "unpaid external refunding wrong_amount"]
    );
    assert_eq!(told(&app, &notice).await, words("accepted", ""));
    assert_eq!(told(&app, &payment("g2", wrong, 7)).await, words("handed_back", "wrong_amount"));
}

/// Runs the job when each held payment is due.
async fn check_held(app: &TestApp) {
    app.execute("UPDATE payments SET next_check_at = now() WHERE next_check_at < 'infinity'").await;
    app.refund_payments().await;
}

#[tokio::test]
async fn a_payment_for_an_order_that_never_comes_goes_back() {
    let app = app().await;
    let coupon = app.create_flash(1).await;
    let unknown = app.order(1, coupon).await + 1;
    assert_eq!(told(&app, &payment("g1", unknown, 1)).await, words("held", "unknown_order"));
    check_held(&app).await;
    assert_eq!(owed(&app).await[0].1, "held", "it may come");
    app.execute("UPDATE payments SET created_at = now() - interval '61 min'").await;
    check_held(&app).await;
    assert_eq!(owed(&app).await[0].1, "refunding");
    assert_eq!(told(&app, &payment("g1", unknown, 1)).await, words("handed_back", "unknown_order"));
    for _ in 0..2 {
        assert_eq!(told(&app, &refund("g1")).await, words("refunded", ""));
    }
    assert_eq!(owed(&app).await, []);
}

#[tokio::test]
async fn an_order_in_review_is_waited_for_however_long_it_takes() {
    let app = app().await;
    let (coupon, order, letter) = in_review(&app).await;
    assert_eq!(told(&app, &payment("g1", order, 1)).await, words("held", "unknown_order"));
    app.execute("UPDATE payments SET created_at = now() - interval '1 year'").await;
    check_held(&app).await;
    assert_eq!(owed(&app).await[0].1, "held");
    let discard = format!("/v1/dead-letters/{letter}/discard");
    assert_eq!(app.post(&discard, &app.admin_token(), &json!({})).await.status, 204);
    check_held(&app).await;
    assert_eq!(app.payments().await, ["cancelled external refunding too_late"], "{coupon}");
}

/// A claim whose entry has become a dead letter: its coupon, order and letter.
async fn in_review(app: &TestApp) -> (CouponId, i64, String) {
    let coupon = app.create_flash(1).await;
    app.refuse("INSERT", "orders", &format!("NEW.coupon_id = {coupon}"), "23514").await;
    let order = app.claim(1, coupon).await.order_id();
    app.write_orders().await;
    app.accept("orders").await;
    let letter = app.waiting("dead_letter").await[0]["id"].as_str().expect("a letter").to_owned();
    (coupon, order, letter)
}

#[tokio::test]
async fn an_id_that_is_used_twice_is_two_payments() {
    let app = app().await;
    let coupon = app.create_flash(2).await;
    let (one, two) = (app.order(1, coupon).await, app.order(2, coupon).await);
    assert_eq!(told(&app, &payment("g1", one, 1)).await, words("accepted", ""));
    for _ in 0..2 {
        assert_eq!(told(&app, &payment("g1", two, 1)).await, words("held", "id_used_twice"));
    }
    assert_eq!(app.status(2, two).await, "unpaid");
    check_held(&app).await;
    let waiting = owed(&app).await;
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    let (id, ..) = &waiting[0];
    let asked = settle(&app, id, "hand-back").await;
    assert_eq!(asked.refusal(), (409, "payment_id_used_twice"));
    for _ in 0..2 {
        assert_eq!(settle(&app, id, "close").await.status, 204);
    }
    assert_eq!(owed(&app).await, []);
    let note = "SELECT count(*) FROM payments WHERE status = 'closed' AND note = 'sent by hand' AND closed_at IS NOT NULL";
    assert_eq!(app.number(note).await, 1, "it stays in the books");
}

#[tokio::test]
async fn an_administrator_hands_back_what_no_order_has() {
    let app = app().await;
    let coupon = app.create_flash(1).await;
    let paid = app.order(1, coupon).await;
    told(&app, &payment("g1", paid, 1)).await;
    told(&app, &payment("g2", paid + 1, 1)).await;
    let accepted =
        app.number("SELECT id FROM payments WHERE status = 'accepted'").await.to_string();
    for how in ["hand-back", "close"] {
        let refused = settle(&app, &accepted, how).await;
        assert_eq!(refused.refusal(), (409, "payment_settled"), "{how}");
        let missing = settle(&app, "9223372036854775807", how).await;
        assert_eq!(missing.refusal(), (404, "payment_not_found"), "{how}");
    }
    let (held, ..) = &owed(&app).await[0];
    for _ in 0..2 {
        assert_eq!(settle(&app, held, "hand-back").await.status, 204);
    }
    assert_eq!(owed(&app).await, [(held.clone(), "refunding".into(), "unknown_order".into())]);
}

/// A payment that gets its order just then doesn't wait any more.
#[tokio::test]
async fn a_payment_that_is_settled_meanwhile_is_neither_handed_back_nor_closed() {
    for how in ["hand-back", "close"] {
        let app = app().await;
        let coupon = app.create_flash(1).await;
        let order = app.claim(1, coupon).await.order_id();
        told(&app, &payment("g1", order, 1)).await;
        app.write_orders().await;
        let (held, ..) = &owed(&app).await[0];
        // What the job does, half way: the row is locked.
        let accepts = format!(
            "UPDATE orders SET status = 'paid', pay_method = 'wechat', paid_at = now(), updated_at = now()
             WHERE id = {order};
             UPDATE payments SET status = 'accepted', refund_reason = NULL, next_check_at = NULL, updated_at = now()
             WHERE id = {held}"
        );
        let job = app.holding(&accepts).await;
        let commit = async {
            app.a_session_waits_for_a_row().await;
            job.commit().await.expect("Postgres answers");
        };
        let (refused, ()) = tokio::join!(settle(&app, held, how), commit);
        assert_eq!(refused.refusal(), (409, "payment_settled"), "{how}");
        assert_eq!(app.payments().await, ["paid external accepted"], "{how}");
        let noted =
            "SELECT count(*) FROM audit WHERE action IN ('hand_payment_back', 'close_payment')";
        assert_eq!(app.number(noted).await, 0, "{how}");
    }
}

#[tokio::test]
async fn a_refund_that_no_gateway_confirms_is_closed_by_hand() {
    let app = app().await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    told(&app, &payment("g1", order, 1)).await;
    app.act(1, order, "refund").await;
    let waiting = owed(&app).await;
    let (id, status, reason) = &waiting[0];
    assert_eq!((status.as_str(), reason.as_str()), ("refunding", "asked_for"));
    assert_eq!(settle(&app, id, "close").await.status, 204);
    assert_eq!((app.status(1, order).await, owed(&app).await.len()), ("refunded".into(), 0));
    assert_eq!((app.sold(coupon).await, app.release().await, app.stock(coupon).await), (0, 1, 1));
    assert_eq!(told(&app, &refund("g1")).await, words("refunded", ""), "the gateway comes late");
}

#[tokio::test]
async fn a_chargeback_ends_the_order_and_returns_its_unit() {
    let app = app().await;
    let coupon = app.create_flash(3).await;
    let (charged_back, redeemed, racing) =
        (app.order(1, coupon).await, app.order(2, coupon).await, app.order(3, coupon).await);
    for (id, order) in [("g1", charged_back), ("g2", redeemed), ("g3", racing)] {
        told(&app, &payment(id, order, 1)).await;
    }
    app.redeem(redeemed).await;
    let notice = refund("g1");
    for reply in join_all((0..5).map(|_| app.confirm(&notice))).await {
        assert_eq!((reply.status, reply.text("outcome")), (200, "charged_back"), "{reply:?}");
        assert_eq!(reply.body["order"]["status"], "refunded");
    }
    assert_eq!(told(&app, &refund("g2")).await, words("charged_back", ""));
    let late = refund("g3");
    tokio::join!(app.confirm(&late), app.act(3, racing, "refund"));
    assert_eq!(app.redeem(charged_back).await.refusal(), (409, "invalid_transition"));
    assert_eq!(app.status(2, redeemed).await, "redeemed", "it has been used");
    assert_eq!(app.status(3, racing).await, "refunded");
    assert_eq!((app.sold(coupon).await, app.release().await, app.stock(coupon).await), (1, 2, 2));
    // Goods and money are lost, and an administrator has to know.
    let waiting = owed(&app).await;
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    let (id, status, reason) = &waiting[0];
    assert_eq!((&**status, &**reason), ("held", "charged_back"));
    // A note of a job that has died before it could end it.
    app.execute(&format!(
        "INSERT INTO postponed (job, item, error, next_try_at) VALUES ('refunds', {id}, 'x', now())"
    ))
    .await;
    app.refund_payments().await;
    assert_eq!(owed(&app).await, waiting, "the payer's bank has taken it back already");
    assert_eq!(settle(&app, id, "close").await.status, 204);
    assert_eq!(told(&app, &refund("g2")).await, words("charged_back", ""));
    assert_eq!((app.status(2, redeemed).await, owed(&app).await), ("redeemed".into(), vec![]));
}

#[tokio::test]
async fn a_chargeback_keeps_the_unit_where_that_is_set_until_its_payment_is_closed() {
    let arguments = ["--payment-callback-secret", SECRET, "--chargeback-keeps-unit"];
    let app = TestApp::configured(&arguments).await;
    let coupon = app.create_flash(3).await;
    let (charged_back, redeemed, racing) =
        (app.order(1, coupon).await, app.order(2, coupon).await, app.order(3, coupon).await);
    for (id, order) in [("g1", charged_back), ("g2", redeemed), ("g3", racing)] {
        told(&app, &payment(id, order, 1)).await;
    }
    app.redeem(redeemed).await;
    let notice = refund("g1");
    for reply in join_all((0..5).map(|_| app.confirm(&notice))).await {
        assert_eq!((reply.status, reply.text("outcome")), (200, "charged_back"), "{reply:?}");
        assert_eq!(reply.body["order"]["status"], "refunding");
    }
    assert_eq!(app.redeem(charged_back).await.refusal(), (409, "invalid_transition"));
    assert_eq!(told(&app, &payment("g1", charged_back, 1)).await, words("accepted", ""));
    app.refund_payments().await;
    check_held(&app).await;
    assert_eq!((app.sold(coupon).await, app.release().await), (3, 0), "its unit is kept");
    assert_eq!(told(&app, &refund("g2")).await, words("charged_back", ""));
    assert_eq!(app.status(2, redeemed).await, "redeemed", "it has been used");

    let open = owed(&app).await;
    assert_eq!(open.len(), 2, "{open:?}");
    let (of_redeemed, ..) = &open[0];
    assert_eq!(settle(&app, of_redeemed, "close").await.status, 204);
    let (id, status, reason) = &open[1];
    assert_eq!((&**status, &**reason), ("held", "charged_back"));
    let refused = settle(&app, id, "hand-back").await;
    assert_eq!(refused.refusal(), (409, "payment_charged_back"));
    for _ in 0..2 {
        assert_eq!(settle(&app, id, "close").await.status, 204);
    }
    assert_eq!(app.status(1, charged_back).await, "refunded");
    assert_eq!(told(&app, &refund("g1")).await, words("charged_back", ""));
    assert_eq!((app.sold(coupon).await, app.release().await, app.stock(coupon).await), (2, 1, 1));

    // Whichever comes first, the money is back once and the order gives its unit back at most once.
    let late = refund("g3");
    tokio::join!(app.confirm(&late), app.act(3, racing, "refund"));
    for (id, ..) in owed(&app).await {
        assert_eq!(settle(&app, &id, "close").await.status, 204);
    }
    assert_eq!(app.status(3, racing).await, "refunded");
    assert_eq!((app.sold(coupon).await, app.release().await, app.stock(coupon).await), (1, 1, 2));
}

#[tokio::test]
async fn each_order_is_told_with_all_of_its_payments() {
    let app = app().await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    told(&app, &payment("g1", order, 7)).await;
    told(&app, &payment("g2", order, 1)).await;
    told(&app, &payment("g3", order, 1)).await;
    told(&app, &payment("g4", order + 1, 1)).await;
    told(&app, &refund("g3")).await;
    let all = app.get(&format!("/v1/orders/{order}/payments"), &app.admin_token()).await;
    let told: Vec<(&str, &Value)> = all.body["payments"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| (one["status"].as_str().expect("a word"), &one["reason"]))
        .collect();
    let words = [("refunding", "wrong_amount"), ("accepted", ""), ("refunded", "paid_twice")];
    let words = words.map(|(status, reason)| (status, json!(reason)));
    for ((status, reason), (wanted, why)) in told.iter().zip(&words) {
        let why = if *why == "" { &Value::Null } else { why };
        assert_eq!((status, *reason), (wanted, why), "{all:?}");
    }
    assert_eq!(told.len(), words.len());
    let none = app.get(&format!("/v1/orders/{}/payments", order + 2), &app.admin_token()).await;
    assert_eq!(none.refusal(), (404, "order_not_found"));
    let unknown = app.get(&format!("/v1/orders/{}/payments", order + 1), &app.admin_token()).await;
    assert_eq!(
        unknown.body["payments"][0]["status"], "held",
        "money for an order that isn't there"
    );
}

#[tokio::test]
async fn the_page_of_metrics_tells_what_is_owed() {
    let app = app().await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    told(&app, &payment("g1", order + 1, 1)).await;
    for id in ["g2", "g3"] {
        told(&app, &payment(id, order, 7)).await;
    }
    app.execute(
        "UPDATE payments SET created_at = now() - interval '10 min',
                             refunding_at = refunding_at - interval '20 min' * (id % 2 + 1)",
    )
    .await;
    app.app.numbers.run_once().bounded().await.expect("both stores answer");
    let page = app.get("/metrics", "").await;
    let page = page.body.as_str().expect("text");
    let value = |name: &str| -> f64 {
        let line = page.lines().find(|line| line.starts_with(name)).expect(name);
        line.rsplit(' ').next().and_then(|number| number.parse().ok()).expect(line)
    };
    assert_eq!(value(r#"flash_sale_payments_owed{status="held"}"#), 1.0);
    assert_eq!(value(r#"flash_sale_payments_owed{status="refunding"}"#), 2.0);
    let oldest = value(r#"flash_sale_payments_owed_oldest_seconds{status="refunding"}"#);
    assert!((2_400.0..3_600.0).contains(&oldest), "{oldest}");
    assert!(value(r#"flash_sale_payments_owed_oldest_seconds{status="held"}"#) >= 600.0);
}
