//! The moves of an order: each allowed one, each refused one, and repeats.

use flash_sale::kit::jwt::Scope;
use serde_json::json;

use crate::support::{Reply, TestApp, bounded, scoped_token};

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
    assert_eq!((app.release().await, app.stock(coupon).await, app.sold(coupon).await), (0, 1, 1));
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

    assert_eq!((app.release().await, app.stock(coupon).await), (1, 1));
    assert_eq!(app.my_claim(1, coupon).await.text("status"), "cancelled", "it is their last order");
    assert_eq!((app.release().await, app.stock(coupon).await), (0, 1), "once");
}

#[tokio::test]
async fn a_regular_order_has_no_unit_to_release() {
    let app = TestApp::start().await;
    let coupon = app.create_regular().await;
    let first = app.order(1, coupon).await;
    assert_eq!(app.cancel(1, first).await.text("status"), "cancelled");
    assert_eq!(app.release().await, 0);
    let second = app.paid_order(1, coupon).await;
    assert_ne!(app.order(1, coupon).await, second, "a paid one doesn't stand in the way");
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
    app.release().await;
}

#[tokio::test]
async fn a_paid_order_is_redeemed_by_an_administrator() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    let order = app.order(1, coupon).await;
    let early = app.redeem(order).await;
    assert_eq!(early.refusal(), (409, "invalid_transition"));
    assert_eq!((early.text("from"), early.text("to")), ("unpaid", "redeemed"));
    app.pay(1, order).await;
    assert_eq!(app.act(1, order, "redeem").await.refusal(), (403, "forbidden"));
    let redeemed = app.redeem(order).await;
    assert_eq!((redeemed.status, redeemed.text("status")), (200, "redeemed"));
    assert_eq!(app.redeem(order).await.refusal(), (409, "already_redeemed"));
    assert_eq!(app.pay(1, order).await.body, redeemed.body, "so it has been paid");
    assert_eq!(app.redeem(order + 1).await.refusal(), (404, "order_not_found"));
    assert_eq!((app.release().await, app.sold(coupon).await), (0, 1), "it keeps its unit");
}

#[tokio::test]
async fn a_refund_gives_the_money_back_and_then_the_unit() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1).await;
    let order = app.paid_order(1, coupon).await;
    let refunding = app.act(1, order, "refund").await;
    assert_eq!((refunding.status, refunding.text("status")), (200, "refunding"));
    assert_eq!(app.act(1, order, "refund").await.body, refunding.body, "a repeat changes nothing");
    assert_eq!(app.payments().await, ["refunding in_process refunding asked_for"]);
    assert_eq!((app.release().await, app.sold(coupon).await), (0, 1), "not before the money");

    assert_eq!((app.refund_payments().await, app.refund_payments().await), (1, 0));
    assert_eq!(app.payments().await, ["refunded in_process refunded asked_for"]);
    let refunded = app.show(1, order).await;
    assert!(refunded.body["paid_at"].is_string() && refunded.body["refunded_at"].is_string());
    assert_eq!(app.act(1, order, "refund").await.body, refunded.body);
    assert_eq!(app.sold(coupon).await, 0);
    assert_eq!((app.release().await, app.stock(coupon).await), (1, 1));
    assert_eq!(app.my_claim(1, coupon).await.text("status"), "refunded");
}

/// Every action on an order in every status: 200 where it leads on or has led here, else both statuses. A redemption
/// happens once.
#[tokio::test]
async fn nothing_else_can_be_done() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(100).await;
    let possible = [
        ("unpaid", &["pay", "cancel"][..]),
        ("paid", &["pay", "refund", "redeem"]),
        ("redeemed", &["pay"]),
        ("cancelled", &["cancel"]),
        ("expired", &[]),
        ("refunding", &["refund"]),
        ("refunded", &["refund"]),
    ];
    let leads_to =
        [("pay", "paid"), ("cancel", "cancelled"), ("refund", "refunding"), ("redeem", "redeemed")];
    let mut user = 0;
    for (status, possible) in possible {
        for (action, to) in leads_to {
            user += 1;
            let order = app.order(user, coupon).await;
            bring_to(&app, user, order, status).await;
            assert_eq!(app.status(user, order).await, status);
            let reply = match action {
                "pay" => app.pay(user, order).await,
                "redeem" => app.redeem(order).await,
                action => app.act(user, order, action).await,
            };
            if possible.contains(&action) {
                assert_eq!(reply.status, 200, "{action} in {status}: {reply:?}");
                continue;
            }
            if status == to {
                assert_eq!(reply.refusal(), (409, "already_redeemed"));
                continue;
            }
            assert_eq!(reply.refusal(), (409, "invalid_transition"), "{action} in {status}");
            assert_eq!((reply.text("from"), reply.text("to")), (status, to));
            assert_eq!(app.status(user, order).await, status, "{action} changes nothing");
        }
    }
}

async fn bring_to(app: &TestApp, user: i64, order: i64, status: &str) {
    if ["paid", "redeemed", "refunding", "refunded"].contains(&status) {
        app.pay(user, order).await;
    }
    match status {
        "redeemed" => drop(app.redeem(order).await),
        "cancelled" => drop(app.cancel(user, order).await),
        "refunding" => drop(app.act(user, order, "refund").await),
        "refunded" => {
            app.act(user, order, "refund").await;
            app.refund_payments().await;
        }
        "expired" => {
            app.let_time_pass().await;
            app.expire().await;
        }
        _ => {}
    }
}

#[tokio::test]
async fn a_refund_and_a_redemption_that_race_have_one_winner() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(40).await;
    for user in 1..=40 {
        let order = app.paid_order(user, coupon).await;
        let (redeemed, refunding) = tokio::join!(app.redeem(order), app.act(user, order, "refund"));
        let (winner, loser) = match redeemed.status {
            200 => (redeemed, refunding),
            _ => (refunding, redeemed),
        };
        assert_eq!((winner.status, loser.refusal()), (200, (409, "invalid_transition")));
        assert_eq!(loser.text("from"), winner.text("status"));
    }
    app.refund_payments().await;
    let kept = "SELECT count(*) FROM payments JOIN orders ON orders.id = order_id
                WHERE (payments.status = 'accepted') != (orders.status = 'redeemed')";
    assert_eq!(
        app.number(kept).await,
        0,
        "the money of redeemed orders is kept, that of the others is back"
    );
}

#[tokio::test]
async fn operators_search_the_orders_of_all_users() {
    let app = TestApp::start().await;
    let (one, other) = (app.create_flash(50).await, app.create_flash(50).await);
    for user in 1..=9 {
        match user % 3 {
            0 => drop(app.paid_order(user, one).await),
            _ => drop(app.order(user, one).await),
        }
    }
    app.paid_order(3, other).await;
    let operator = scoped_token(77, Scope::Operator);
    let ask = async |filter: &str| app.get(&format!("/v1/orders?{filter}"), &operator).await;
    let users = |reply: &Reply| -> Vec<String> {
        let orders = reply.body["orders"].as_array().expect("a list").iter();
        orders.map(|order| order["user_id"].as_str().expect("an id").to_owned()).collect()
    };
    for (filter, expected) in [
        (format!("coupon={one}"), "9 8 7 6 5 4 3 2 1"),
        (format!("coupon={one}&status=paid"), "9 6 3"),
        (format!("coupon={other}"), "3"),
        ("user=3".to_owned(), "3 3"),
        (format!("user=3&coupon={other}&status=paid"), "3"),
        ("user=1&status=paid".to_owned(), ""),
        ("status=paid".to_owned(), "3 9 6 3"),
        (format!("from=2026-03-01T00:00:00Z&coupon={other}"), "3"),
        ("to=2026-03-01T00:05:00Z".to_owned(), ""),
        ("user=77".to_owned(), ""),
    ] {
        let reply = ask(&filter).await;
        assert_eq!(users(&reply).join(" "), expected, "{filter}: {reply:?}");
        let orders = reply.body["orders"].as_array().expect("a list");
        assert!(orders.iter().all(|order| order["redemption_code"].is_null()), "{filter}");
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    bounded("the last page", async {
        loop {
            let reply = ask(&format!("to=2030-01-01T00:00:00Z&limit=3{cursor}")).await;
            seen.extend(users(&reply));
            let Some(next) = reply.body["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
    })
    .await;
    assert_eq!(seen.join(" "), "3 9 8 7 6 5 4 3 2 1");
    assert!(users(&ask("").await).is_empty(), "its own orders");
    for wrong in ["user=0", "coupon=x", "status=cooked", "from=today", "to=1", "colour=red"] {
        assert_eq!(ask(wrong).await.refusal(), (400, "invalid_query"), "{wrong}");
    }
    for token in [app.token(1), scoped_token(77, Scope::Clerk)] {
        let refused = app.get("/v1/orders?user=1", &token).await;
        assert_eq!(refused.refusal(), (403, "forbidden"));
    }
}
