//! The bound on a user's unpaid orders, and places that come back: once, wherever a process dies.

use flash_sale::store::ids::CouponId;
use serde_json::json;

use crate::support::{SECRET, TestApp};

/// An app where a user may hold two, with three coupons.
async fn bounded() -> (TestApp, [CouponId; 3]) {
    let app =
        TestApp::configured(&["--unpaid-orders-max", "2", "--payment-callback-secret", SECRET])
            .await;
    let coupons = [app.create_flash(9).await, app.create_flash(9).await, app.create_flash(9).await];
    (app, coupons)
}

/// The user's list of unpaid orders in Redis.
async fn listed(app: &TestApp, user: i64) -> Vec<i64> {
    let key = app.keys().unpaid(crate::support::lane());
    let list: Option<String> = app.redis(&["HGET", &key, &user.to_string()]).await;
    list.iter().flat_map(|list| list.split(' ')).map(|id| id.parse().unwrap()).collect()
}

/// Checks that the claim is refused, and took no unit.
async fn assert_too_many(app: &TestApp, user: i64, coupon: CouponId) {
    let stock = app.stock(coupon).await;
    assert_eq!(app.claim(user, coupon).await.refusal(), (409, "too_many_unpaid_orders"));
    assert_eq!(app.stock(coupon).await, stock);
}

/// Claims a flash coupon and cancels the order, again and again, until the cancelling is refused. Returns the number of
/// closed orders, and the last order, which is unpaid if there was a refusal.
async fn claimed_and_cancelled(
    app: &TestApp,
    user: i64,
    coupon: CouponId,
    most: usize,
) -> (usize, i64) {
    let mut last = 0;
    for closed in 0..most {
        last = app.order(user, coupon).await;
        let cancelled = app.cancel(user, last).await;
        if cancelled.status != 200 {
            assert_eq!(cancelled.refusal(), (409, "too_many_closed_orders"));
            let seconds: i64 = cancelled.header("retry-after").parse().expect("seconds");
            assert!((1..=3_601).contains(&seconds), "{cancelled:?}");
            return (closed, last);
        }
        app.release().await;
    }
    (most, last)
}

#[tokio::test]
async fn claiming_and_cancelling_a_flash_coupon_in_a_loop_is_bounded_by_default() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(9).await;
    let (closed, last) = claimed_and_cancelled(&app, 1, coupon, 30).await;
    assert_eq!((closed, app.number("SELECT count(*) FROM orders").await), (20, 21));
    assert_eq!(app.status(1, last).await, "unpaid");
    assert_eq!(app.cancel(1, last).await.refusal(), (409, "too_many_closed_orders"), "again");
    assert_eq!(app.pay(1, last).await.status, 200);
    let unbounded = TestApp::configured(&["--closed-orders-max", "0"]).await;
    let coupon = unbounded.create_flash(9).await;
    assert_eq!(claimed_and_cancelled(&unbounded, 1, coupon, 30).await.0, 30);
}

/// A refund is never refused; so the payment after it is.
#[tokio::test]
async fn paying_and_refunding_a_flash_coupon_in_a_loop_is_bounded() {
    let app = TestApp::configured(&["--closed-orders-max", "3"]).await;
    let coupon = app.create_flash(9).await;
    for _ in 0..3 {
        let order = app.order(1, coupon).await;
        assert_eq!(app.pay(1, order).await.status, 200);
        assert_eq!(app.act(1, order, "refund").await.status, 200);
        app.refund_payments().await;
        assert_eq!(app.status(1, order).await, "refunded");
        app.release().await;
    }
    let order = app.order(1, coupon).await;
    let reply = app.pay(1, order).await;
    assert_eq!(reply.refusal(), (409, "too_many_closed_orders"));
    assert!(!reply.header("retry-after").is_empty());
    let other = app.order(2, coupon).await;
    assert_eq!(app.pay(2, other).await.status, 200, "another user");
}

#[tokio::test]
async fn closed_orders_of_a_flash_coupon_count_for_their_user_their_coupon_and_their_hour() {
    let app = TestApp::configured(&["--closed-orders-max", "2"]).await;
    let (coupon, another) = (app.create_flash(9).await, app.create_flash(9).await);
    let (closed, last) = claimed_and_cancelled(&app, 1, coupon, 9).await;
    assert_eq!(closed, 2);
    assert_eq!(claimed_and_cancelled(&app, 2, coupon, 2).await.0, 2, "another user");
    assert_eq!(claimed_and_cancelled(&app, 1, another, 2).await.0, 2, "another coupon");
    let path = format!("/v1/orders/{last}/cancel-for-buyer");
    let by_staff = app.post(&path, &app.admin_token(), &json!({"reason": "asked for"})).await;
    assert_eq!(by_staff.status, 200, "an administrator may: {by_staff:?}");
    let repeat = app.cancel(1, last).await;
    assert_eq!(repeat.status, 200, "it is cancelled already: {repeat:?}");
    app.release().await;
    let next = app.order(1, coupon).await;
    assert_eq!(app.cancel(1, next).await.refusal(), (409, "too_many_closed_orders"));
    // Ids carry seconds.
    app.expect_disagreements();
    let hour = 3_602_i64 << 32;
    app.execute(&format!(
        "DELETE FROM stock_returns; UPDATE orders SET id = id - {hour} WHERE status = 'cancelled'"
    ))
    .await;
    assert_eq!(app.cancel(1, next).await.status, 200, "an hour later");
}

#[tokio::test]
async fn a_bound_of_one_is_one_and_without_a_bound_no_list_is_kept() {
    for (max, listed, second) in [("0", 0, 202), ("1", 1, 409)] {
        let app = TestApp::configured(&["--unpaid-orders-max", max]).await;
        let a = app.create_flash(9).await;
        let b = app.create_flash(9).await;
        app.order(1, a).await;
        let lists: i64 = app.redis(&["HLEN", &app.keys().unpaid(crate::support::lane())]).await;
        assert_eq!((lists, app.claim(1, b).await.status), (listed, second), "at most {max}");
        app.write_orders().await;
    }
}

#[tokio::test]
async fn a_user_holds_so_many_unpaid_orders_and_no_more() {
    let (app, [a, b, c]) = bounded().await;
    let first = app.order(1, a).await;
    // In flight: the order counts from the moment it is accepted.
    let second = app.claim(1, b).await.order_id();
    assert_too_many(&app, 1, c).await;
    assert_eq!(listed(&app, 1).await, [first, second]);
    assert_eq!(
        app.claim(1, a).await.refusal(),
        (409, "already_claimed"),
        "a repeat finds its order"
    );
    assert_eq!(app.claim(2, c).await.status, 202, "another user's are another matter");
    assert_eq!(app.my_claim(1, c).await.refusal(), (404, "not_claimed"));
}

#[tokio::test]
async fn a_place_comes_back_when_an_order_is_paid() {
    let (app, [a, b, c]) = bounded().await;
    let first = app.order(1, a).await;
    let second = app.order(1, b).await;
    app.pay(1, first).await;
    assert_too_many(&app, 1, c).await;
    assert_eq!(app.release().await, 1);
    assert_eq!(listed(&app, 1).await, [second]);
    assert_eq!((app.stock(a).await, app.sold(a).await), (8, 1), "the unit stays sold");
    let third = app.order(1, c).await;
    assert_eq!(listed(&app, 1).await, [second, third]);

    let notice = json!({"kind": "payment", "payment_id": "g1", "order_id": second.to_string(),
                        "method": 1, "amount_cents": 1});
    app.confirm(&notice).await;
    app.confirm(&notice).await;
    assert_eq!(
        (app.release().await, app.release().await),
        (1, 0),
        "once, however often it is confirmed"
    );
    assert_eq!(listed(&app, 1).await, [third]);
}

#[tokio::test]
async fn a_place_comes_back_with_the_unit() {
    let (app, [a, b, c]) = bounded().await;
    let first = app.order(1, a).await;
    let second = app.order(1, b).await;
    app.cancel(1, first).await;
    app.release().await;
    assert_eq!(listed(&app, 1).await, [second]);
    app.let_time_pass().await;
    app.expire().await;
    app.release().await;
    assert_eq!(listed(&app, 1).await, [] as [i64; 0]);
    for coupon in [a, b] {
        app.order(1, coupon).await;
    }
    assert_too_many(&app, 1, c).await;
}

#[tokio::test]
async fn a_place_comes_back_also_when_the_sale_is_gone() {
    let (app, [a, b, _]) = bounded().await;
    let first = app.order(1, a).await;
    let second = app.order(1, b).await;
    app.execute(&format!("UPDATE flash_sales SET archived_at = now() WHERE coupon_id = {a}")).await;
    app.lose_sale(a).await;
    app.cancel(1, first).await;
    assert_eq!(app.release().await, 1);
    assert_eq!(listed(&app, 1).await, [second]);
}

#[tokio::test]
async fn a_user_who_claims_everything_at_one_moment_gets_so_many() {
    let app = TestApp::configured(&["--unpaid-orders-max", "2"]).await;
    let mut coupons = Vec::new();
    for _ in 0..10 {
        coupons.push(app.create_flash(9).await);
    }
    let claims = coupons.iter().flat_map(|coupon| [app.claim(1, *coupon), app.claim(1, *coupon)]);
    let replies = futures_util::future::join_all(claims).await;
    assert_eq!(replies.iter().filter(|reply| reply.status == 202).count(), 2);
    app.write_orders().await;
    assert_eq!(app.number("SELECT count(*) FROM orders").await, 2);
}
