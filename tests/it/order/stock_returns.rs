//! Units on their way back: once each, wherever a process dies, and never from a user who has claimed anew.

use flash_sale::store::ids::CouponId;

use crate::support::{TestApp, lane};

/// An app that asks Redis about every claim, with one coupon of this stock.
async fn app_with(stock: i64) -> (TestApp, CouponId) {
    let app = TestApp::configured(&["--sold-out-memory-ms", "0"]).await;
    let coupon = app.create_flash(stock).await;
    (app, coupon)
}

/// Opens the returns again, as if the job had died before it noted them.
async fn forget_that_they_are_done(app: &TestApp) {
    app.execute("UPDATE stock_returns SET done_at = NULL").await;
}

#[tokio::test]
async fn a_user_whose_unit_came_back_may_claim_anew() {
    let (app, coupon) = app_with(1).await;
    let first = app.order(1, coupon).await;
    app.cancel(1, first).await;
    assert_eq!(app.claim(1, coupon).await.refusal(), (409, "already_claimed"), "not yet");
    assert_eq!(app.claim(2, coupon).await.refusal(), (410, "sold_out"));

    app.release().await;
    let second = app.order(1, coupon).await;
    assert_ne!(first, second);
    assert_eq!(app.my_claim(1, coupon).await.order_id(), second);
    assert_eq!(
        (app.status(1, first).await, app.status(1, second).await),
        ("cancelled".into(), "unpaid".into())
    );
}

#[tokio::test]
async fn a_job_that_died_before_it_wrote_that_down_is_run_again() {
    let (app, coupon) = app_with(3).await;
    let order = app.order(1, coupon).await;
    app.cancel(1, order).await;
    for _ in 0..3 {
        assert_eq!((app.release().await, app.stock(coupon).await), (1, 3));
        forget_that_they_are_done(&app).await;
    }
    let returns: i64 = app.redis(&["HGET", &app.keys().coupon(coupon), "restocks"]).await;
    assert_eq!(returns, 1, "and no process is told again");
}

#[tokio::test]
async fn who_has_claimed_anew_keeps_the_new_order() {
    let (app, coupon) = app_with(2).await;
    let first = app.order(1, coupon).await;
    app.cancel(1, first).await;
    app.release().await;
    // In flight: only Redis knows of the claim yet.
    let second = app.claim(1, coupon).await.order_id();
    forget_that_they_are_done(&app).await;
    assert_eq!((app.release().await, app.stock(coupon).await), (1, 1));
    app.write_orders().await;
    assert_eq!(app.my_claim(1, coupon).await.order_id(), second);
}

#[tokio::test]
async fn an_entry_that_is_read_again_leaves_a_closed_order_closed() {
    let (app, coupon) = app_with(2).await;
    let order = app.order(1, coupon).await;
    app.cancel(1, order).await;
    let coupon_text = coupon.to_string();
    let entry = ["coupon", &coupon_text, "user", "1", "order", &order.to_string()];
    app.append(lane(), &entry).await;
    assert_eq!(app.write_orders().await.repeated, 1, "while the unit is on its way");
    app.release().await;
    app.append(lane(), &entry).await;
    assert_eq!(app.write_orders().await.repeated, 1, "after it has come back");
    assert_eq!((app.status(1, order).await, app.sold(coupon).await), ("cancelled".into(), 0));
    let second = app.order(1, coupon).await;
    app.append(lane(), &entry).await;
    assert_eq!(app.write_orders().await.repeated, 1, "after they have claimed anew");
    assert_eq!((app.status(1, second).await, app.sold(coupon).await), ("unpaid".into(), 1));
    // The log has more entries than claims now.
    app.expect_disagreements();
}

#[tokio::test]
async fn what_cannot_come_back_now_waits_and_holds_up_nobody() {
    let (app, lost) = app_with(2).await;
    let kept = app.create_flash(2).await;
    let one = app.order(1, lost).await;
    let two = app.order(2, kept).await;
    app.cancel(1, one).await;
    app.cancel(2, two).await;
    let key = app.keys().coupon(lost);
    let _: String = app.redis(&["RENAME", &key, &format!("{key}:hidden")]).await;
    assert_eq!((app.release().await, app.stock(kept).await), (1, 2));
    assert_eq!(app.release().await, 0, "it waits");
    app.let_postponed_be_due().await;
    assert_eq!(app.release().await, 0, "it is lost");
    app.let_postponed_be_due().await;
    let _: String = app.redis(&["RENAME", &format!("{key}:hidden"), &key]).await;
    assert_eq!((app.release().await, app.stock(lost).await), (1, 2));
}

/// Closed orders of users `1..=count`, each with a unit on its way back.
async fn closed_orders(app: &TestApp, coupon: CouponId, count: i64) {
    app.execute(&format!(
        "SET LOCAL statement_timeout = '60s';
         INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
             SELECT {coupon} * 1000000 + n, {coupon}, 'flash', n, now(), 'cancelled', now()
             FROM generate_series(1, {count}) AS n;
         INSERT INTO stock_returns (order_id, coupon_id, user_id)
             SELECT {coupon} * 1000000 + n, {coupon}, n FROM generate_series(1, {count}) AS n"
    ))
    .await;
}

async fn waiting(app: &TestApp, coupon: CouponId) -> i64 {
    app.number(&format!(
        "SELECT count(*) FROM stock_returns WHERE done_at IS NULL AND coupon_id = {coupon}"
    ))
    .await
}

#[tokio::test]
async fn a_broken_sale_holds_up_no_other_whatever_is_broken_about_it() {
    for (field, value) in [("stock", "few"), ("restocks", "many"), ("epoch", "9")] {
        let (app, broken) = app_with(2).await;
        let kept = app.create_flash(2).await;
        let one = app.order(1, broken).await;
        let two = app.order(2, kept).await;
        let key = app.keys().coupon(broken);
        let [was] = app.in_redis(broken, [field]).await;
        let _: i64 = app.redis(&["HSET", &key, field, value]).await;
        app.cancel(1, one).await;
        app.cancel(2, two).await;
        assert_eq!((app.release().await, app.stock(kept).await), (1, 2), "{field}");
        assert_eq!(app.postponed().await, [format!("stock_returns {broken} 1")], "{field}");

        let _: i64 = match was.as_str() {
            "" => app.redis(&["HDEL", &key, field]).await,
            was => app.redis(&["HSET", &key, field, was]).await,
        };
        app.let_postponed_be_due().await;
        assert_eq!((app.release().await, app.stock(broken).await), (1, 2), "{field}");
        assert_eq!(app.postponed().await, [] as [String; 0], "{field}");
    }
}

#[tokio::test]
async fn every_sale_gets_its_turn_beside_a_large_backlog() {
    let (app, large) = app_with(2).await;
    closed_orders(&app, large, 15_000).await;
    let mut small = Vec::new();
    for _ in 0..5 {
        let coupon = app.create_flash(2).await;
        let order = app.order(1, coupon).await;
        app.cancel(1, order).await;
        small.push(coupon);
    }
    assert_eq!(app.release().await, 10_005, "ten batches of the large one");
    for coupon in small {
        assert_eq!(app.stock(coupon).await, 2);
    }
    assert_eq!((app.release().await, waiting(&app, large).await), (5_000, 0));
    app.expect_disagreements();
}

#[tokio::test]
async fn a_new_epoch_is_learned_before_anything_is_given_back() {
    let (app, coupon) = app_with(1).await;
    let order = app.order(1, coupon).await;
    app.cancel(1, order).await;
    app.execute("UPDATE lanes SET epoch = 2").await;
    for key in [app.keys().coupon(coupon), app.keys().lane(coupon.lane())] {
        let _: i64 = app.redis(&["HSET", &key, "epoch", "2"]).await;
    }
    assert_eq!((app.release().await, app.stock(coupon).await), (0, 0), "the epoch was another");
    assert_eq!((app.release().await, app.stock(coupon).await), (1, 1));
}
