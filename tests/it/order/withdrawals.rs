//! The unit of a discarded dead letter comes back if Redis has its user as a buyer by it.

use flash_sale::store::audit::Actor;
use flash_sale::store::ids::{CouponId, DeadLetterId};

use crate::support::{TestApp, lane};

/// An app that asks Redis about every claim, with one sale of which all units are sold and written: to users 1, 2, 3 ...
async fn sold_out(units: i64) -> (TestApp, CouponId) {
    let app = TestApp::configured(&["--sold-out-memory-ms", "0"]).await;
    let coupon = app.create_flash(units).await;
    for n in 1..=units {
        assert_eq!(app.claim(n, coupon).await.status, 202);
    }
    app.write_orders().await;
    (app, coupon)
}

/// Redis goes back to before this user had claimed.
async fn forget(app: &TestApp, coupon: CouponId, n: i64) {
    app.forget_buyer(coupon, n).await;
    let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", "1"]).await;
}

/// A promise without a unit in Postgres.
async fn oversold(app: &TestApp, coupon: CouponId, n: i64) -> i64 {
    let order = app.claim(n, coupon).await.order_id();
    assert_eq!(app.write_orders().await.dead_letters, 1);
    assert_eq!(app.my_claim(n, coupon).await.text("status"), "in_review");
    order
}

/// Discards every open dead letter. Returns their number.
async fn discard_all(app: &TestApp) -> usize {
    let open = app.numbers("SELECT id FROM dead_letters WHERE resolved_at IS NULL").await;
    for letter in &open {
        let letter = DeadLetterId::new(*letter).expect("an id");
        let by = Actor::command_line();
        app.app.dead_letters.discard(letter, &by).await.expect("Postgres answers");
    }
    open.len()
}

/// Checks that each user is told the truth, and that the stores agree: these are the buyers, and so many units are
/// left.
async fn assert_settled(app: &TestApp, coupon: CouponId, buyers: &[i64], left: i64) {
    assert_eq!(app.stock(coupon).await, left, "stock");
    assert_eq!(app.buyers(coupon).await.into_keys().collect::<Vec<_>>(), buyers);
    let report = app.reconcile().await;
    assert!(report.agrees() && report.sales[0].identical, "{report:#?}");
    for n in buyers {
        let mine = app.my_claim(*n, coupon).await;
        let again = app.claim(*n, coupon).await;
        assert_eq!(again.refusal(), (409, "already_claimed"), "user {n}");
        assert_eq!(again.order_id(), mine.order_id(), "user {n}");
    }
}

/// Redis went back to before a claim, and the unit was sold again. A recovery finds that: then the live order has the unit.
#[tokio::test]
async fn after_a_recovery_a_discarded_promise_offers_no_unit_that_is_not_there() {
    let (app, coupon) = sold_out(2).await;
    forget(&app, coupon, 2).await;
    let order = oversold(&app, coupon, 3).await;
    app.execute("UPDATE lanes SET epoch = epoch + 1, state = 'recovering', closed_at = now(), reason = 'a test'").await;
    app.recover().await;
    assert_eq!(discard_all(&app).await, 1);
    assert_eq!(app.release().await, 1);
    assert_settled(&app, coupon, &[1, 2], 0).await;
    assert_eq!(app.status(3, order).await, "cancelled");
    assert_eq!(app.claim(4, coupon).await.refusal(), (410, "sold_out"));
}

#[tokio::test]
async fn a_job_that_died_before_it_wrote_that_down_returns_no_unit_twice() {
    let app = TestApp::configured(&["--sold-out-memory-ms", "0"]).await;
    let coupon = app.create_flash(2).await;
    app.order(1, coupon).await;
    app.execute("UPDATE flash_sales SET sold = 2").await;
    oversold(&app, coupon, 2).await;
    discard_all(&app).await;
    app.execute("UPDATE flash_sales SET sold = 1").await;
    for _ in 0..3 {
        assert_eq!(app.release().await, 1);
        assert_settled(&app, coupon, &[1], 1).await;
        app.execute("UPDATE stock_returns SET done_at = NULL").await;
    }
    app.release().await;
}

#[tokio::test]
async fn an_entry_that_was_made_by_hand_has_no_place() {
    let (app, coupon) = sold_out(1).await;
    app.append(lane(), &["coupon", &coupon.to_string(), "user", "7", "order", "77"]).await;
    assert_eq!(app.write_orders().await.dead_letters, 1);
    discard_all(&app).await;
    assert_eq!(app.release().await, 1);
    assert_settled(&app, coupon, &[1], 0).await;
}

#[tokio::test]
async fn a_letter_of_a_sale_that_is_archived_by_then_only_ends() {
    let (app, coupon) = sold_out(1).await;
    forget(&app, coupon, 1).await;
    oversold(&app, coupon, 2).await;
    discard_all(&app).await;
    app.execute("UPDATE flash_sales SET archived_at = now()").await;
    app.lose_sale(coupon).await;
    assert_eq!((app.release().await, app.release().await), (1, 0));
}
