//! Orders that are not paid in time, and payments that come at the last moment.

use chrono::{DateTime, TimeDelta, Utc};
use flash_sale::log::LoggedClaim;
use flash_sale::order::model::OrderStatus;
use flash_sale::order::model::PayMethod;
use flash_sale::order::moves::Moved;
use flash_sale::order::write::Origin;
use flash_sale::store::ids::{CouponId, OrderId};
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::support::{Bounded, TestApp, bounded, lane, moved, now, user};

/// Unpaid orders of so many users, written.
async fn orders(app: &TestApp, coupon: CouponId, users: i64) -> Vec<(i64, OrderId)> {
    for n in 1..=users {
        app.app.claims.claim(coupon, user(n)).await.expect("both stores answer");
    }
    app.write_orders().await;
    let mut orders = Vec::new();
    for n in 1..=users {
        let order = app.app.orders.live_of(coupon, user(n)).await.expect("Postgres answers");
        orders.push((n, order.expect("they have one")));
    }
    orders
}

#[tokio::test]
async fn an_order_that_is_not_paid_in_time_expires_and_its_unit_comes_back() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(3).await;
    let (late, paid, young) =
        (app.order(1, coupon).await, app.paid_order(2, coupon).await, app.order(3, coupon).await);
    assert_eq!(app.expire().await, 0, "no order is late yet");
    app.execute(&format!(
        "UPDATE orders SET pay_by = pay_by - interval '901 s' WHERE id != {young}"
    ))
    .await;

    assert_eq!((app.expire().await, app.expire().await), (1, 0));
    let expired = app.show(1, late).await;
    assert_eq!(expired.text("status"), "expired");
    assert!(expired.body["expired_at"].is_string());
    assert_eq!(
        (app.status(2, paid).await, app.status(3, young).await),
        ("paid".into(), "unpaid".into())
    );
    let too_late = app.pay(1, late).await;
    assert_eq!(too_late.refusal(), (409, "invalid_transition"));
    assert_eq!((too_late.text("from"), too_late.text("to")), ("expired", "paid"));
    assert_eq!((app.release().await, app.stock(coupon).await, app.sold(coupon).await), (1, 1, 2));
    assert_ne!(app.order(1, coupon).await, late, "they may claim anew");
}

#[tokio::test]
async fn the_window_is_a_setting_and_begins_with_the_claim() {
    let app = TestApp::configured(&["--payment-window-s", "3600"]).await;
    let coupon = app.create_flash(1).await;
    let regular = app.create_regular().await;
    for order in [app.order(1, coupon).await, app.order(1, regular).await] {
        let shown = app.show(1, order).await;
        let time = |name: &str| -> DateTime<Utc> { shown.text(name).parse().expect("a time") };
        assert_eq!((time("pay_by") - time("claimed_at")).num_seconds(), 3_600);
    }
    assert_eq!(app.expire().await, 0);
    app.let_time_pass().await;
    assert_eq!(app.expire().await, 2);
}

#[tokio::test]
async fn a_claim_that_waited_long_in_the_log_can_be_paid_all_the_same() {
    for (window, least) in [("3600", 300), ("60", 60)] {
        let app = TestApp::configured(&["--payment-window-s", window]).await;
        let coupon = app.create_flash(1).await;
        let order = OrderId::new(app.claim(1, coupon).await.order_id()).expect("an order id");
        let claim = LoggedClaim {
            claimed_at: now() - TimeDelta::hours(5),
            ..LoggedClaim::without_entry(coupon, user(1), order)
        };
        let never = CancellationToken::new();
        app.app
            .orders
            .write((lane(), 1), Origin::Lane(None), &[claim], &never)
            .await
            .expect("Postgres answers");
        let pay_by = "SELECT extract(epoch FROM pay_by - created_at)::bigint FROM orders";
        assert_eq!(app.number(pay_by).await, least);
        app.write_orders().await;
    }
}

#[tokio::test]
async fn many_orders_expire_in_batches_and_two_workers_share_them() {
    let app = TestApp::start().await;
    let one = app.create_flash(900).await;
    let two = app.create_flash(900).await;
    orders(&app, one, 800).await;
    orders(&app, two, 800).await;
    app.let_time_pass().await;
    let another = app.another_instance().await;
    let (first, second) = tokio::join!(app.expire(), another.expiry.run_once());
    let left = app.expire().await;
    assert_eq!(first + second.unwrap().items + left, 1_600);
    assert_eq!((app.sold(one).await, app.sold(two).await), (0, 0));
    assert_eq!(app.release().await, 1_600);
    assert_eq!((app.stock(one).await, app.stock(two).await), (900, 900));
}

#[tokio::test]
async fn regular_orders_expire_too_and_have_no_unit() {
    let app = TestApp::start().await;
    let coupon = app.create_regular().await;
    let order = app.order(1, coupon).await;
    app.let_time_pass().await;
    assert_eq!((app.expire().await, app.release().await), (1, 0));
    assert_eq!(app.status(1, order).await, "expired");
    app.order(1, coupon).await;
}

#[tokio::test]
async fn an_order_whose_entry_is_read_again_stays_expired() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    app.let_time_pass().await;
    app.expire().await;
    let log = app.log(coupon.lane());
    let _: String = app.redis(&["XGROUP", "SETID", &log, "order-writers", "0"]).await;
    assert_eq!(app.write_orders().await.repeated, 1);
    assert_eq!(app.status(1, order).await, "expired");
}

#[tokio::test]
async fn of_payment_and_expiry_exactly_one_wins_in_a_thousand_races() {
    const ROUNDS: usize = 40;
    const ORDERS: usize = 30;
    // About as many as the payments that a round takes one after the other.
    const CHECKS_MAX: usize = 50;
    let app = TestApp::start().await;
    let races = i64::try_from(ROUNDS * ORDERS).unwrap();
    let coupon = app.create_flash(races).await;
    let orders = orders(&app, coupon, races).await;
    let worker = app.another_instance().await;
    let first = orders[0].1;
    let mut paid = 0;
    let mut expired = 0;
    for (number, round) in orders.chunks(ORDERS).enumerate() {
        let ids: Vec<String> = round.iter().map(|(_, order)| order.to_string()).collect();
        let due = format!(
            "UPDATE orders SET pay_by = pay_by - interval '1 day' WHERE id IN ({})",
            ids.join(",")
        );
        app.execute(&due).await;
        let pay = |&(n, order)| app.app.payments.pay(user(n), order, PayMethod::Alipay, None);
        // Each round begins to expire a little later in the course of its payments, on other connections.
        let expire = async {
            for _ in 0..number % CHECKS_MAX {
                worker.orders.get(user(1), first).await.expect("Postgres answers");
            }
            worker.expiry.run_once().bounded().await
        };
        let (answers, expired_now) = tokio::join!(join_all(round.iter().map(pay)), expire);
        expired_now.expect("Postgres answers");
        app.expire().await;
        for ((n, order), answer) in round.iter().zip(answers) {
            let now = app.app.orders.get(user(*n), *order).await.unwrap().unwrap();
            match moved(answer.unwrap()) {
                Moved::There(_) => {
                    assert_eq!(now.status, OrderStatus::Paid);
                    paid += 1;
                }
                Moved::Impossible { from, to } => {
                    assert_eq!((from, to), (OrderStatus::Expired, OrderStatus::Paid));
                    assert_eq!(now.status, OrderStatus::Expired);
                    expired += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(paid + expired, races);
    assert!(paid.min(expired) > races / 20, "{paid} were paid and {expired} expired: no races");
    // All money of payments that lost the race after the charge goes back.
    let late = app.number("SELECT count(*) FROM payments WHERE refund_reason = 'too_late'").await;
    let accepted = app.number("SELECT count(*) FROM payments WHERE status = 'accepted'").await;
    assert_eq!((accepted, app.sold(coupon).await), (paid, paid));
    assert!(late <= expired);
    println!("{races} races: {paid} paid, {expired} expired, {late} of these after the charge");
    bounded("all money is back", async { while app.refund_payments().await > 0 {} }).await;
    assert_eq!(app.number("SELECT count(*) FROM payments WHERE status = 'refunded'").await, late);
    app.release().await;
    assert_eq!(app.stock(coupon).await, expired);
}
