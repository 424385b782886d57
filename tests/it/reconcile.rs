//! The law of conservation: every way to break it is found and named. A check that finds nothing proves
//! nothing until it has been seen to find something.

use flash_sale::sale::ids::CouponId;

use crate::support::TestApp;

/// An app with two written orders of one coupon, by users 1 and 2.
async fn two_orders() -> (TestApp, CouponId) {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    for user in 1..=2 {
        assert_eq!(app.claim(user, coupon).await.status, 202);
    }
    app.write_orders().await;
    assert!(app.reconcile().await.agrees());
    app.expect_disagreements();
    (app, coupon)
}

async fn assert_named(app: &TestApp, expected: &[&str]) {
    let named: Vec<String> =
        app.reconcile().await.disagreements.iter().map(ToString::to_string).collect();
    assert_eq!(named.len(), expected.len(), "{named:#?}");
    for part in expected {
        assert!(named.iter().any(|line| line.contains(part)), "nothing says {part:?}: {named:#?}");
    }
}

#[tokio::test]
async fn units_that_vanish_or_appear_in_redis() {
    let (app, coupon) = two_orders().await;
    let key = app.keys().coupon(coupon);
    let _: i64 = app.redis(&["HINCRBY", &key, "stock", "-1"]).await;
    assert_named(&app, &["total 5 is not stock 2 + buyers 2"]).await;
    let _: i64 = app.redis(&["HSET", &key, "stock", "-1"]).await;
    assert_named(&app, &["total 5 is not stock -1 + buyers 2", "stock is -1"]).await;
    let _: i64 = app.redis(&["HSET", &key, "stock", "4", "total", "6"]).await;
    assert_named(&app, &["Redis offers 6 units in all, Postgres 5"]).await;
}

#[tokio::test]
async fn a_sale_that_is_missing_or_of_another_epoch() {
    let (app, coupon) = two_orders().await;
    let key = app.keys().coupon(coupon);
    let _: i64 = app.redis(&["HSET", &key, "epoch", "9"]).await;
    assert_named(&app, &["its epoch is 9 in Redis and 1 in Postgres"]).await;
    let _: i64 = app.redis(&["DEL", &key]).await;
    assert_named(&app, &["was loaded into Redis and is missing there"]).await;
}

#[tokio::test]
async fn a_promise_without_an_order() {
    let (app, _) = two_orders().await;
    app.execute("DELETE FROM orders WHERE user_id = 2; UPDATE flash_sales SET sold = 1").await;
    assert_named(
        &app,
        &["user 2 was promised order", "2 entries of the order log were acknowledged, but only 1"],
    )
    .await;
}

#[tokio::test]
async fn an_order_without_a_promise() {
    let (app, coupon) = two_orders().await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at) VALUES (9, {coupon}, 'flash', 3, now());
         UPDATE flash_sales SET sold = 3"
    ))
    .await;
    assert_named(&app, &["user 3 has order 9, but is no buyer in Redis"]).await;
}

#[tokio::test]
async fn an_order_with_another_id_than_was_promised() {
    let (app, coupon) = two_orders().await;
    let _: i64 = app.redis(&["HSET", &app.keys().buyers(coupon), "2", "77"]).await;
    assert_named(&app, &["user 2 was promised order 77", "but order 77 in Redis"]).await;
}

#[tokio::test]
async fn a_miscounted_sale() {
    let (app, _) = two_orders().await;
    app.execute("UPDATE flash_sales SET sold = 1").await;
    assert_named(&app, &["Postgres counts 1 as sold, but has 2 live orders"]).await;
}

#[tokio::test]
async fn an_acknowledgement_without_a_row() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    assert!(app.reconcile().await.agrees(), "an entry in flight is accounted for");
    let mut worker = app.workers().remove(0);
    worker.ensure_group().await.unwrap();
    // A consumer that acknowledges what it hasn't written: the classic way to lose an order.
    let log = app.keys().log(coupon.lane());
    let read = "local r = redis.call('XREADGROUP', 'GROUP', 'order-writers', 'x', 'STREAMS', KEYS[1], '>') return redis.call('XACK', KEYS[1], 'order-writers', r[1][2][1][1])";
    let _: i64 = app.redis(&["EVAL", read, "1", &log]).await;
    assert_named(
        &app,
        &["user 1 was promised order", "1 entries of the order log were acknowledged, but only 0"],
    )
    .await;
    app.expect_disagreements();
}

#[tokio::test]
async fn a_pending_entry_that_was_deleted() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    app.workers().remove(0).ensure_group().await.unwrap();
    let log = app.keys().log(coupon.lane());
    let read_and_delete = "local r = redis.call('XREADGROUP', 'GROUP', 'order-writers', 'x', 'STREAMS', KEYS[1], '>') return redis.call('XDEL', KEYS[1], r[1][2][1][1])";
    let _: i64 = app.redis(&["EVAL", read_and_delete, "1", &log]).await;
    assert_named(
        &app,
        &["user 1 was promised order", "was deleted from the order log before it was written"],
    )
    .await;
    app.expect_disagreements();
}
