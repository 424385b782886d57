//! One bad item never stops the others: each job puts it aside, logs it once, tries it again, and deals with all
//! other items by then.

use std::time::Duration;

use flash_sale::coupon::model::CouponState;
use flash_sale::store::ids::CouponId;

use crate::coupon::load::only_in_postgres;
use crate::support::{Bounded, Reply, TestApp, eventually};

/// Unpaid orders of these users, past their time.
async fn late_orders(app: &TestApp, coupon: CouponId, users: std::ops::RangeInclusive<i64>) {
    for user in users {
        assert_eq!(app.claim(user, coupon).await.status, 202);
    }
    app.write_orders().await;
    app.let_time_pass().await;
}

/// Postgres counts one order of this sale fewer than there are, as when one was inserted by hand.
async fn miscount(app: &TestApp, coupon: CouponId) {
    app.execute(&format!("UPDATE flash_sales SET sold = sold - 1 WHERE coupon_id = {coupon}"))
        .await;
}

/// Sets `sold` right again.
async fn count_again(app: &TestApp) {
    app.execute(
        "UPDATE flash_sales SET sold = (SELECT count(*) FROM orders WHERE orders.coupon_id = flash_sales.coupon_id
             AND status IN ('unpaid', 'paid', 'redeemed', 'refunding'))",
    )
    .await;
}

async fn with_status(app: &TestApp, coupon: CouponId, status: &str) -> i64 {
    let query = "SELECT count(*) FROM orders WHERE";
    app.number(&format!("{query} coupon_id = {coupon} AND status = '{status}'")).await
}

#[tokio::test]
async fn an_order_that_is_counted_nowhere_holds_up_no_other_that_expires() {
    let app = TestApp::start().await;
    let bad = app.create_flash(20).await;
    let good = app.create_flash(20).await;
    late_orders(&app, bad, 1..=9).await;
    late_orders(&app, good, 11..=19).await;
    miscount(&app, bad).await;
    assert_eq!(app.expire().await, 17, "all but one");
    assert_eq!((with_status(&app, good, "expired").await, app.sold(good).await), (9, 0));
    assert_eq!((with_status(&app, bad, "expired").await, app.sold(bad).await), (8, 0));
    let order = app
        .number(&format!("SELECT id FROM orders WHERE coupon_id = {bad} AND status = 'unpaid'"))
        .await;
    assert_eq!(app.postponed().await, [format!("expiry {order} 1")]);
    let error = "SELECT count(*) FROM postponed WHERE error LIKE '%flash_sales_sold_within_total%'";
    assert_eq!(app.number(error).await, 1, "it says why");

    app.let_postponed_wait().await;
    // The order is left alone until it is due, however many orders become due meanwhile.
    late_orders(&app, good, 21..=22).await;
    assert_eq!((app.expire().await, app.postponed().await.len()), (2, 1));
    for tries in 2..=3 {
        app.let_postponed_be_due().await;
        assert_eq!(app.expire().await, 0);
        assert_eq!(app.postponed().await, [format!("expiry {order} {tries}")]);
    }
    assert_eq!(app.metric("flash_sale_job_failures_total{name=\"expiry\"}").await, 3.0);

    count_again(&app).await;
    app.let_postponed_be_due().await;
    assert_eq!(app.expire().await, 1);
    assert_eq!(app.postponed().await, [] as [String; 0]);
    assert_eq!(with_status(&app, bad, "expired").await, 9);
}

#[tokio::test]
async fn the_pauses_grow_and_are_kept_in_postgres() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(3).await;
    late_orders(&app, coupon, 1..=1).await;
    miscount(&app, coupon).await;
    let another = app.another_instance().await;
    for pause_s in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        assert_eq!(app.expire().await, 0);
        let pause =
            "SELECT round(extract(epoch FROM next_try_at - updated_at))::bigint FROM postponed";
        assert_eq!(app.number(pause).await, pause_s);
        app.let_postponed_wait().await;
        // Another process finds the note, and nothing to do.
        assert_eq!(another.expiry.run_once().bounded().await.expect("Postgres answers").items, 0);
        app.let_postponed_be_due().await;
    }
    assert_eq!(app.number("SELECT tries FROM postponed").await, 11);
    count_again(&app).await;
    assert_eq!(
        another.expiry.run_once().bounded().await.expect("Postgres answers").items,
        1,
        "the first process that looks"
    );
}

#[tokio::test]
async fn a_payment_that_cannot_go_back_holds_up_no_other() {
    let app = TestApp::start().await;
    let bad = app.create_flash(9).await;
    let good = app.create_flash(9).await;
    let mut orders = Vec::new();
    for (user, coupon) in [(1, bad), (2, good), (3, good)] {
        let order = app.paid_order(user, coupon).await;
        assert_eq!(app.act(user, order, "refund").await.status, 200);
        orders.push(order);
    }
    miscount(&app, bad).await;
    assert_eq!(app.refund_payments().await, 2);
    assert_eq!(app.status(1, orders[0]).await, "refunding");
    let payment = app.number("SELECT id FROM payments WHERE status = 'refunding'").await;
    assert_eq!(app.postponed().await, [format!("refunds {payment} 1")]);
    app.let_postponed_wait().await;
    assert_eq!((app.refund_payments().await, app.postponed().await.len()), (0, 1));

    count_again(&app).await;
    assert_eq!(app.refund_payments().await, 0, "it isn't due");
    app.let_postponed_be_due().await;
    assert_eq!((app.refund_payments().await, app.postponed().await.len()), (1, 0));
    assert_eq!(app.status(1, orders[0]).await, "refunded");
}

#[tokio::test]
async fn a_change_is_applied_although_an_older_coupon_cannot_be_changed() {
    for (field, value) in [("epoch", "9"), ("restocks", "many"), ("stock", "few")] {
        let app = TestApp::start().await;
        let bad = app.create_flash(3).await;
        let good = app.create_flash(3).await;
        app.changes_job().await;
        let key = app.keys().coupon(bad);
        let [was] = app.in_redis(bad, [field]).await;
        let _: i64 = app.redis(&["HSET", &key, field, value]).await;
        app.decide_on(bad, CouponState::Paused).await;
        app.decide_on(good, CouponState::Paused).await;
        assert_eq!(app.changes_job().await, 1, "{field}");
        assert_eq!(app.claim(1, good).await.refusal(), (409, "sale_paused"), "{field}");
        assert_eq!(app.postponed().await, [format!("changes {bad} 1")], "{field}");
        app.let_postponed_wait().await;

        // A corrected sale is applied when it is due, and not before.
        let _: i64 = match was.as_str() {
            "" => app.redis(&["HDEL", &key, field]).await,
            was => app.redis(&["HSET", &key, field, was]).await,
        };
        assert_eq!(app.changes_job().await, 0, "{field}");
        app.let_postponed_be_due().await;
        assert_eq!((app.changes_job().await, app.postponed().await.len()), (1, 0), "{field}");
        assert_eq!(app.claim(1, bad).await.refusal(), (409, "sale_paused"), "{field}");
    }
}

#[tokio::test]
async fn a_sale_is_loaded_although_an_older_one_cannot_be() {
    let app = TestApp::start().await;
    let coupons = [only_in_postgres(&app, 3).await, only_in_postgres(&app, 3).await];
    // A key of another type stands in the place of the first sale.
    let _: i64 = app.redis(&["LPUSH", &app.keys().coupon(coupons[0]), "x"]).await;
    let ahead = Duration::from_secs(3_600);
    assert_eq!(app.app.loader.run_once(ahead).bounded().await.expect("both stores answer"), 1);
    assert_eq!(app.stock(coupons[1]).await, 3);
    assert_eq!(app.postponed().await, [format!("warm_up {} 1", coupons[0])]);
    let _: i64 = app.redis(&["DEL", &app.keys().coupon(coupons[0])]).await;
    app.let_postponed_be_due().await;
    assert_eq!(app.app.loader.run_once(ahead).bounded().await.expect("both stores answer"), 1);
    assert_eq!(app.postponed().await, [] as [String; 0]);
}

#[tokio::test]
async fn a_sale_is_archived_although_an_older_one_cannot_be_read() {
    let app = TestApp::configured(&["--archive-after-ms", "0"]).await;
    let bad = app.create_flash(3).await;
    let good = app.create_flash(3).await;
    app.paid_order(1, bad).await;
    app.paid_order(2, good).await;
    for coupon in [bad, good] {
        assert_eq!(app.r#move(coupon, "end").await.status, 200);
    }
    let shard = app.shard_of(bad, 1).await;
    let _: i64 = app.redis(&["HSET", &shard, "77", "ju\0nk"]).await;
    assert_eq!(app.app.archive.run_once().bounded().await.expect("both stores answer"), 1);
    let archived = "SELECT coupon_id FROM flash_sales WHERE archived_at IS NOT NULL";
    assert_eq!(app.number(archived).await, good.get());
    assert_eq!(app.postponed().await, [format!("archive {bad} 1")]);
    app.let_postponed_wait().await;

    let _: i64 = app.redis(&["HDEL", &shard, "77"]).await;
    assert_eq!(
        app.app.archive.run_once().bounded().await.expect("both stores answer"),
        0,
        "it isn't due"
    );
    app.let_postponed_be_due().await;
    assert_eq!(app.app.archive.run_once().bounded().await.expect("both stores answer"), 1);
    assert_eq!(app.postponed().await, [] as [String; 0]);
}

#[tokio::test]
async fn a_store_that_does_not_answer_postpones_nothing() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(3).await;
    late_orders(&app, coupon, 1..=2).await;
    app.execute("ALTER TABLE stock_returns RENAME TO aside").await;
    assert!(app.app.expiry.run_once().bounded().await.is_err());
    app.execute("ALTER TABLE aside RENAME TO stock_returns").await;
    assert_eq!(app.postponed().await.len(), 0);
    // The broken transaction may hold the rows for a moment more.
    let mut expired = 0;
    eventually("both orders expire", async || {
        expired += app.expire().await;
        expired == 2
    })
    .await;
}

async fn retry(app: &TestApp, id: &str) -> Reply {
    let path = format!("/v1/postponed/{id}/retry");
    let request = app.client().post(app.url.clone() + &path).bearer_auth(app.admin_token());
    app.send(request, "POST", &path).await
}

#[tokio::test]
async fn an_operator_sees_what_is_postponed_and_has_it_tried_again() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(9).await;
    late_orders(&app, coupon, 1..=2).await;
    app.execute("UPDATE flash_sales SET sold = 0").await;
    assert_eq!((app.expire().await, app.postponed().await.len()), (0, 2));
    let item = app.waiting("postponed").await[0].clone();
    let text = |name: &str| item[name].as_str().expect("a text");
    let order = app.number("SELECT item FROM postponed ORDER BY id DESC LIMIT 1").await;
    assert_eq!(text("reason"), "expiry");
    assert!(text("detail").contains(&format!("order {order} has failed 1 times")), "{item}");
    assert!(text("detail").contains("flash_sales_sold_within_total"), "{item}");
    assert!(text("what_to_do").contains("`flash-sale reconcile`"), "{item}");

    count_again(&app).await;
    app.let_postponed_wait().await;
    assert_eq!(app.expire().await, 0, "not due");
    let id = text("id");
    for _ in 0..2 {
        assert_eq!(retry(&app, id).await.status, 204);
    }
    assert_eq!(app.expire().await, 1);
    assert_eq!(retry(&app, id).await.refusal(), (404, "postponed_not_found"));
    app.let_postponed_be_due().await;
    assert_eq!(app.expire().await, 1);
    assert_eq!(app.number("SELECT count(*) FROM postponed").await, 0);
}
