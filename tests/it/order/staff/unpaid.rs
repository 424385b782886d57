//! All unpaid orders of a coupon, cancelled: their time to be paid ends, and the expiry closes them.

use flash_sale::base::limits::CANCELLATIONS_BATCH;
use flash_sale::store::ids::CouponId;
use serde_json::{Value, json};

use crate::support::buyers::FIRST_ORDER_BY_HAND;
use crate::support::{TestApp, bounded};

/// Asks for it. Returns the number of orders.
async fn ask(app: &TestApp, coupon: CouponId) -> Value {
    let path = format!("/v1/coupons/{coupon}/cancel-unpaid");
    let reply =
        app.post(&path, &app.admin_token(), &json!({"reason": "the price was wrong"})).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.body["orders"].clone()
}

#[tokio::test]
async fn all_unpaid_orders_are_cancelled_with_their_reason_and_no_others() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(9).await;
    let other = app.create_flash(1).await;
    let (one, two) = (app.order(1, coupon).await, app.order(2, coupon).await);
    let paid = app.paid_order(3, coupon).await;
    let of_another = app.order(1, other).await;
    assert_eq!(ask(&app, coupon).await, 2);
    assert_eq!(ask(&app, coupon).await, 0, "a repeat concerns none of them");
    assert_eq!(app.expire().await, 2);
    for (user, order, status) in
        [(1, one, "cancelled"), (2, two, "cancelled"), (3, paid, "paid"), (1, of_another, "unpaid")]
    {
        let order = app.get(&format!("/v1/orders/{order}"), &app.token(user)).await;
        assert_eq!(order.text("status"), status, "{order:?}");
        let reason = match status {
            "cancelled" => json!("the price was wrong"),
            _ => Value::Null,
        };
        assert_eq!(order.body["cancel_reason"], reason);
        assert_eq!(order.body["cancelled_at"].is_string(), status == "cancelled");
        assert!(order.body["expired_at"].is_null(), "{order:?}");
    }
    assert_eq!((app.release().await, app.stock(coupon).await, app.sold(coupon).await), (2, 8, 1));
    let path = format!("/v1/audit?subject={coupon}&action=cancel_unpaid_orders");
    let book = app.get(&path, &app.admin_token()).await.body["entries"].clone();
    assert_eq!(book[0]["after"], json!({"reason": "the price was wrong"}));
}

#[tokio::test]
async fn orders_of_later_stay_and_an_order_that_nobody_cancels_expires() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(3).await;
    // Accepted before, and an order only later.
    let in_the_log = app.claim(1, coupon).await.order_id();
    assert_eq!(ask(&app, coupon).await, 0);
    app.write_orders().await;
    assert_eq!((app.expire().await, app.status(1, in_the_log).await), (0, "unpaid".into()));
    assert_eq!(ask(&app, coupon).await, 1);
    let later = app.order(2, coupon).await;
    assert_eq!(app.expire().await, 1);
    assert_eq!(app.status(1, in_the_log).await, "cancelled");
    assert_eq!(app.status(2, later).await, "unpaid");
    app.let_time_pass_for(later).await;
    assert_eq!((app.expire().await, app.status(2, later).await), (1, "expired".into()));
}

/// Each page is a transaction of its own.
#[tokio::test]
async fn more_orders_than_one_page_are_cancelled_by_one_request() {
    let app = TestApp::start().await;
    let orders = 2 * CANCELLATIONS_BATCH + 1;
    let coupon = app.create_flash(orders).await;
    app.sell_out_by_hand(coupon, orders).await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_cents, currency, pay_by)
             SELECT {FIRST_ORDER_BY_HAND} + n, {coupon}, 'flash', n, now() - interval '1 min' + n * interval '1 ms', 1, 'CNY',
                    now() + interval '1 hour'
             FROM generate_series(1, {orders}) AS n;
         UPDATE flash_sales SET sold = {orders} WHERE coupon_id = {coupon}"
    ))
    .await;
    assert_eq!(ask(&app, coupon).await, orders);
    assert_eq!(app.expire().await, usize::try_from(orders).expect("a small number"));
    let cancelled = "SELECT count(*) FROM orders WHERE status = 'cancelled'";
    assert_eq!(app.number(cancelled).await, orders);
}

/// Two processes expire orders while the buyers pay.
#[tokio::test]
async fn an_order_is_paid_or_cancelled_and_never_both() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(20).await;
    let mut orders = Vec::new();
    for user in 1..=20 {
        orders.push((user, app.claim(user, coupon).await.order_id()));
    }
    app.write_orders().await;
    assert_eq!(ask(&app, coupon).await, 20);
    let other = app.another_instance().await;
    let pay = async {
        let mut paid = 0;
        for (user, order) in &orders {
            paid += i64::from(app.pay(*user, *order).await.status == 200);
        }
        paid
    };
    let jobs = async { tokio::join!(app.expire(), other.expiry.run_once()) };
    let both = bounded("jobs and payments", async { tokio::join!(pay, jobs) }).await;
    let (paid, (here, there)) = both;
    let cancelled = here + there.expect("Postgres answers").items;
    assert_eq!(paid + i64::try_from(cancelled).expect("few"), 20);
    assert_eq!(app.sold(coupon).await, paid);
}
