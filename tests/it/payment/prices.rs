//! An order costs what its coupon cost at the claim.

use flash_sale::store::ids::CouponId;
use serde_json::{Value, json};

use crate::support::{SECRET, TestApp};

async fn app() -> TestApp {
    TestApp::configured(&["--payment-callback-secret", SECRET]).await
}

async fn set_price(app: &TestApp, coupon: CouponId, pay_cents: i64) {
    let edited = app.edit(coupon, &json!({"pay_cents": pay_cents})).await;
    assert_eq!(edited.status, 200, "{edited:?}");
}

/// The gateway's word about this amount for an order: outcome and reason.
async fn paid(app: &TestApp, order: i64, amount_cents: i64) -> (String, Value) {
    let id = format!("g{order}-{amount_cents}");
    let notice = json!({"kind": "payment", "payment_id": id, "order_id": order.to_string(), "method": 3,
                        "amount_cents": amount_cents});
    let reply = app.confirm(&notice).await;
    (reply.text("outcome").to_owned(), reply.body["reason"].clone())
}

#[tokio::test]
async fn a_price_that_changes_between_claim_and_row_is_that_of_the_claim() {
    let app = app().await;
    let coupon = app.create_flash(3).await;
    let before = app.claim(1, coupon).await.order_id();
    set_price(&app, coupon, 700).await;
    let between = app.claim(2, coupon).await.order_id();
    set_price(&app, coupon, 9).await;
    app.write_orders().await;
    let after = app.order(3, coupon).await;
    for (user, order, price) in [(1, before, 1), (2, between, 700), (3, after, 9)] {
        let shown = app.show(user, order).await;
        assert_eq!((&shown.body["pay_cents"], shown.text("currency")), (&json!(price), "CNY"));
        assert_eq!(
            paid(&app, order, price + 1).await,
            ("handed_back".into(), json!("wrong_amount"))
        );
        assert_eq!(paid(&app, order, price).await, ("accepted".into(), Value::Null));
    }
}

#[tokio::test]
async fn an_unpaid_order_keeps_its_price_when_the_coupon_is_edited() {
    let app = app().await;
    let flash = app.create_flash(1).await;
    let regular = app.create_regular().await;
    for coupon in [flash, regular] {
        let order = app.order(1, coupon).await;
        let first = app.show(1, order).await.body["pay_cents"].as_i64().expect("a price");
        set_price(&app, coupon, first + 700).await;
        assert_eq!(app.show(1, order).await.body["pay_cents"], first);
        assert_eq!(paid(&app, order, first + 700).await.0, "handed_back");
        assert_eq!(paid(&app, order, first).await.0, "accepted");
    }
}

#[tokio::test]
async fn a_payer_who_expects_another_price_is_told_so_before_money_moves() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    let path = format!("/v1/orders/{order}/pay");
    let pay = async |expected: Value| {
        let body = json!({"method": "balance", "expected_cents": expected});
        app.post(&path, &app.token(1), &body).await
    };
    let differs = pay(json!(2)).await;
    assert_eq!(differs.refusal(), (409, "price_differs"));
    assert!(differs.text("detail").contains("costs 1 CNY"), "{differs:?}");
    assert_eq!((&differs.body["pay_cents"], &differs.body["currency"]), (&json!(1), &json!("CNY")));
    for bad in [json!("1"), json!(-1), json!(1.5), json!(1_000_000_000_001_i64)] {
        assert_eq!(pay(bad.clone()).await.refusal(), (422, "invalid_body"), "{bad}");
    }
    assert_eq!(app.payments().await.len(), 0);
    assert_eq!(pay(json!(1)).await.text("status"), "paid");
    assert_eq!(pay(json!(2)).await.text("status"), "paid", "it is paid, whatever is expected now");
}

/// Redis may hear of an edit later than Postgres, so the time of a claim doesn't tell its price; its entry does.
#[tokio::test]
async fn a_letter_that_is_tried_again_costs_what_its_claim_did() {
    let app = app().await;
    let coupon = app.create_flash(2).await;
    let order = app.claim(1, coupon).await.order_id();
    app.execute("UPDATE flash_sales SET sold = total").await;
    assert_eq!(app.write_orders().await.dead_letters, 1);
    app.execute("UPDATE flash_sales SET sold = 0").await;
    set_price(&app, coupon, 700).await;
    let body = json!({"reason": "oversold"});
    let retried = app.post("/v1/dead-letters/retry", &app.admin_token(), &body).await;
    assert_eq!((retried.status, &retried.body["orders"]), (200, &json!(1)), "{retried:?}");
    assert_eq!(app.show(1, order).await.body["pay_cents"], 1);
}

#[tokio::test]
async fn a_claim_without_a_price_is_a_dead_letter() {
    let app = app().await;
    let coupon = app.create_flash(1).await;
    let order = app.claim(1, coupon).await.order_id();
    app.execute("DELETE FROM coupon_prices").await;
    assert_eq!(app.write_orders().await.dead_letters, 1);
    let letters = app.waiting("dead_letter").await;
    let letter = &letters[0];
    assert_eq!(letter["reason"], "invalid");
    assert!(letter["detail"].as_str().expect("a text").contains("has no price"), "{letter}");
    let retry = async || {
        let id = letter["id"].as_str().expect("an id");
        app.post(&format!("/v1/dead-letters/{id}/retry"), &app.admin_token(), &json!({})).await
    };
    assert_eq!(retry().await.refusal(), (409, "order_refused"));
    app.execute(&format!("INSERT INTO coupon_prices VALUES ({coupon}, 1, 5, 'CNY')")).await;
    let retried = retry().await;
    assert_eq!(retried.status, 200, "{retried:?}");
    let shown = app.show(1, order).await;
    assert_eq!(
        (&shown.body["pay_cents"], shown.text("currency")),
        (&json!(5), "CNY"),
        "the currency of its coupon"
    );
}

/// No gateway takes a payment of nothing, so an order that costs nothing is paid as it is written.
#[tokio::test]
async fn an_order_that_costs_nothing_is_paid_when_it_is_written() {
    let app = TestApp::configured(&[
        "--payment-callback-secret",
        SECRET,
        "--unpaid-orders-max",
        "1",
        "--closed-orders-max",
        "2",
    ])
    .await;
    let (flash, other, regular) =
        (app.create_flash(2).await, app.create_flash(2).await, app.create_regular().await);
    for coupon in [flash, other, regular] {
        set_price(&app, coupon, 0).await;
        let order = app.order(1, coupon).await;
        let shown = app.show(1, order).await;
        assert_eq!((shown.text("status"), &shown.body["pay_cents"]), ("paid", &json!(0)));
        assert!(shown.body["redemption_code"].is_string(), "{shown:?}");
        assert_eq!(app.pay(1, order).await.text("status"), "paid", "a page may ask all the same");
        app.release().await;
    }
    assert!(app.payments().await.is_empty(), "no gateway has any money");
    assert_eq!(app.sold(flash).await, 1);

    // The refund is done at once, and claim and refund don't go round for ever.
    for round in 0..2 {
        let order = match round {
            0 => app.my_claim(1, flash).await.order_id(),
            _ => app.order(1, flash).await,
        };
        assert_eq!(app.act(1, order, "refund").await.text("status"), "refunded", "{round}");
        app.release().await;
        assert_eq!((app.sold(flash).await, app.stock(flash).await), (0, 2));
    }
    let last = app.order(1, flash).await;
    assert_eq!(app.act(1, last, "refund").await.refusal(), (409, "too_many_closed_orders"));
    let by_hand = app.redeem(last).await;
    assert_eq!((by_hand.status, by_hand.text("status")), (200, "redeemed"));
}

/// An order from before the price of nothing was known to be paid.
#[tokio::test]
async fn an_unpaid_order_that_costs_nothing_is_paid_without_a_gateway() {
    let app = app().await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    app.execute("UPDATE orders SET pay_cents = 0").await;
    let paid = app.pay(1, order).await;
    assert_eq!((paid.status, paid.text("status")), (200, "paid"));
}
