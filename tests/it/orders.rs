//! The moves of an order: each way it can go, each way it can't, and the same asked twice.

use futures_util::future::join_all;
use serde_json::json;

use crate::support::TestApp;

#[tokio::test]
async fn an_order_is_paid() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    let order = app.order(1, coupon).await;

    let path = format!("/v1/orders/{order}/pay");
    let paid = app.post(&path, &app.token(1), &json!({"method": "wechat"})).await;
    assert_eq!(
        (paid.status, paid.text("status"), paid.text("pay_method")),
        (200, "paid", "wechat")
    );
    assert!(paid.body["paid_at"].is_string(), "{paid:?}");
    let again = app.post(&path, &app.token(1), &json!({"method": "alipay"})).await;
    assert_eq!((again.status, &again.body), (200, &paid.body), "a repeat changes nothing");
    assert_eq!(app.number("SELECT count(*) FROM payments WHERE amount_cents = 1").await, 1);
    assert_eq!((app.give_back().await, app.stock(coupon).await, app.sold(coupon).await), (0, 1, 1));
}

#[tokio::test]
async fn an_order_is_cancelled_and_its_unit_comes_back() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;

    let cancelled = app.cancel(1, order).await;
    assert_eq!((cancelled.status, cancelled.text("status")), (200, "cancelled"));
    let again = app.cancel(1, order).await;
    assert_eq!((again.status, &again.body), (200, &cancelled.body), "a repeat changes nothing");
    assert_eq!((app.sold(coupon).await, app.stock(coupon).await), (0, 0));
    assert!(app.reconcile().await.agrees(), "a unit on its way back is accounted for");
    assert_eq!(app.my_claim(1, coupon).await.text("status"), "cancelled");

    assert_eq!((app.give_back().await, app.stock(coupon).await), (1, 1));
    assert_eq!(app.my_claim(1, coupon).await.text("status"), "cancelled", "it is their last order");
    assert_eq!((app.give_back().await, app.stock(coupon).await), (0, 1), "once");
}

#[tokio::test]
async fn a_regular_order_has_no_unit_to_give_back() {
    let app = TestApp::start().await;
    let coupon = app.create_regular().await;
    let first = app.order(1, coupon).await;
    assert_eq!(app.cancel(1, first).await.text("status"), "cancelled");
    assert_eq!(app.give_back().await, 0);
    let second = app.paid_order(1, coupon).await;
    assert_ne!(app.order(1, coupon).await, second, "a paid one doesn't stand in the way");
}

#[tokio::test]
async fn other_people_s_orders_cannot_be_moved() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    for missing in [order, order + 1] {
        assert_eq!(app.pay(2, missing).await.refusal(), (404, "order_not_found"));
        assert_eq!(app.cancel(2, missing).await.refusal(), (404, "order_not_found"));
    }
    assert_eq!(app.status(1, order).await, "unpaid");
}

#[tokio::test]
async fn of_moves_that_race_one_wins_and_the_others_are_told_both_statuses() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(40).await;
    for user in 1..=40 {
        let order = app.order(user, coupon).await;
        let (paid, cancelled) = tokio::join!(app.pay(user, order), app.cancel(user, order));
        let (winner, loser) = match paid.status {
            200 => (paid, cancelled),
            _ => (cancelled, paid),
        };
        assert_eq!(winner.status, 200);
        assert_eq!(loser.refusal(), (409, "invalid_transition"));
        assert_eq!(loser.text("from"), winner.text("status"));
        assert_eq!(app.status(user, order).await, winner.text("status"));
    }
    let late = "SELECT count(*) FROM payments JOIN orders ON orders.id = order_id
                WHERE (payments.status = 'accepted') != (orders.status = 'paid')";
    assert_eq!(app.number(late).await, 0, "money is kept for paid orders only");
    app.give_back().await;
}

#[tokio::test]
async fn a_crowd_of_repeats_moves_an_order_once() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    let (paid, cancelled) = (app.order(1, coupon).await, app.order(2, coupon).await);
    for reply in join_all((0..20).map(|_| app.pay(1, paid))).await {
        assert_eq!((reply.status, reply.text("status")), (200, "paid"));
    }
    for reply in join_all((0..20).map(|_| app.cancel(2, cancelled))).await {
        assert_eq!((reply.status, reply.text("status")), (200, "cancelled"));
    }
    assert_eq!(app.number("SELECT count(*) FROM payments").await, 1);
    assert_eq!((app.give_back().await, app.stock(coupon).await), (1, 1));
}
