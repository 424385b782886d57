//! Old orders are deleted with all that belongs to them, once their sale is archived and gone from Redis; and a claim
//! on an archived sale never becomes an order, so nothing brings a deleted one back.

use flash_sale::app::App;
use flash_sale::base::limits::RETENTION_BATCH;
use flash_sale::store::ids::{CouponId, order_id};
use serde_json::{Value, json};

use crate::support::{Bounded, SECRET, TestApp, lane, now};

/// Age of the orders when the job looks at them.
const DAYS: i64 = 200;

const OPTIONS: [&str; 6] =
    ["--payment-callback-secret", SECRET, "--archive-after-ms", "0", "--orders-days", "100"];

/// Tables with rows of orders.
const TABLES: [&str; 5] = ["orders", "payments", "redemptions", "stock_returns", "dead_letters"];

/// Has the clock of these orders' ids be so many days back.
async fn app() -> TestApp {
    TestApp::configured(&OPTIONS).await
}

/// Ends a sale, and has it leave Redis.
async fn archive(app: &TestApp, coupon: CouponId) {
    app.release().await;
    assert_eq!(app.r#move(coupon, "end").await.status, 200);
    assert_eq!(app.app.archive.run_once().bounded().await.expect("both stores answer"), 1);
}

async fn deleted(app: &App) -> usize {
    let then = now() + chrono::TimeDelta::days(DAYS);
    app.retention.run_at(then).bounded().await.expect("Postgres answers").items
}

async fn rows(app: &TestApp) -> [i64; 5] {
    let mut rows = [0; 5];
    for (count, table) in rows.iter_mut().zip(TABLES) {
        *count = app.number(&format!("SELECT count(*) FROM {table}")).await;
    }
    rows
}

/// Has the log read again from its start. Returns new rows, repeats and new dead letters.
async fn replay(app: &TestApp) -> (usize, usize, usize) {
    let log = app.log(lane());
    let _: i64 = app.redis(&["XGROUP", "DESTROY", &log, flash_sale::log::GROUP]).await;
    let report = app.write_orders().await;
    (report.inserted, report.repeated, report.dead_letters)
}

/// An ended sale and its orders: of user 1 redeemed, of 2 cancelled, of 3 refunded, of 4 paid.
struct OldSale {
    coupon: CouponId,
    redeemed: i64,
    cancelled: i64,
    paid: i64,
}

async fn old_sale(app: &TestApp) -> OldSale {
    let coupon = app.create_flash(9).await;
    let redeemed = app.paid_order(1, coupon).await;
    assert_eq!(app.redeem(redeemed).await.status, 200);
    let cancelled = app.order(2, coupon).await;
    assert_eq!(app.cancel(2, cancelled).await.status, 200);
    let refunded = app.paid_order(3, coupon).await;
    assert_eq!(app.act(3, refunded, "refund").await.status, 200);
    assert_eq!(app.refund_payments().await, 1);
    let paid = app.paid_order(4, coupon).await;
    archive(app, coupon).await;
    OldSale { coupon, redeemed, cancelled, paid }
}

#[tokio::test]
async fn orders_that_are_over_go_with_all_that_belongs_to_them_and_a_paid_one_stays() {
    let app = app().await;
    let OldSale { redeemed, paid, .. } = old_sale(&app).await;
    let regular = app.create_regular().await;
    let given_up = app.claim(1, regular).await.order_id();
    assert_eq!(app.cancel(1, given_up).await.status, 200);
    let other = app.another_instance().await;
    let (first, second) = tokio::join!(deleted(&app.app), deleted(&other));
    assert_eq!(first + second, 4, "each once, by either process");
    assert_eq!(rows(&app).await, [1, 1, 1, 0, 0], "those of the paid order");
    for (buyer, order, status) in [(1, redeemed, 404), (1, given_up, 404), (4, paid, 200)] {
        assert_eq!(app.show(buyer, order).await.status, status, "{order}");
        let to_staff = app.get(&format!("/v1/orders/{order}"), &app.admin_token()).await;
        assert_eq!(to_staff.status, status, "{order}");
    }
    let list = app.get("/v1/orders", &app.token(1)).await.body;
    assert_eq!((&list["orders"], &list["next_cursor"]), (&json!([]), &Value::Null));
    assert_eq!(app.metric("flash_sale_orders_deleted_total").await + second as f64, 4.0);
    assert!(app.reconcile().await.agrees(), "deleted orders are no lost ones");
    assert_eq!((deleted(&app.app).await, deleted(&other).await), (0, 0));
}

#[tokio::test]
async fn nothing_goes_by_default() {
    let app = TestApp::configured(&["--archive-after-ms", "0"]).await;
    let coupon = app.create_flash(9).await;
    let order = app.order(1, coupon).await;
    assert_eq!(app.cancel(1, order).await.status, 200);
    archive(&app, coupon).await;
    assert_eq!(deleted(&app.app).await, 0);
    assert_eq!(app.show(1, order).await.status, 200);
}

#[tokio::test]
async fn an_order_stays_as_long_as_anything_of_it_is_young_or_under_way() {
    let app = app().await;
    let OldSale { coupon, redeemed, cancelled, .. } = old_sale(&app).await;
    app.expect_disagreements();
    let young = format!("now() + interval '{DAYS} days'");
    // The redeemed order alone, and at last the cancelled one.
    app.execute(&format!("UPDATE orders SET updated_at = {young} WHERE id <> {redeemed}")).await;
    for (why, set, set_back) in [
        (
            "its sale is in Redis",
            "UPDATE flash_sales SET removed_at = NULL".to_owned(),
            "UPDATE flash_sales SET removed_at = now()".to_owned(),
        ),
        (
            "it was changed a moment ago",
            format!("UPDATE orders SET updated_at = {young}"),
            format!("UPDATE orders SET updated_at = now() WHERE id = {redeemed}"),
        ),
        (
            "its payment was changed a moment ago",
            format!("UPDATE payments SET updated_at = {young}"),
            "UPDATE payments SET updated_at = now()".to_owned(),
        ),
        (
            "its letter is open",
            format!(
                "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id)
                     VALUES (0, '1-1', '{{}}', 'conflict', '', {coupon}, 1, {redeemed})"
            ),
            "DELETE FROM dead_letters".to_owned(),
        ),
        (
            "the gateway is asked about a payment of it",
            format!(
                "INSERT INTO opened_payments (order_id, method, amount_cents, currency, next_check_at)
                     VALUES ({redeemed}, 'alipay', 1, 'CNY', now())"
            ),
            "DELETE FROM opened_payments".to_owned(),
        ),
        (
            "money of it goes back",
            format!(
                "INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason, updated_at)
                     VALUES ({redeemed}, 'external', 'g', 'alipay', 1, 'refunding', 'paid_twice', now())"
            ),
            "DELETE FROM payments WHERE gateway_payment_id = 'g'".to_owned(),
        ),
        (
            "its unit is on its way",
            format!(
                "UPDATE orders SET updated_at = now() WHERE id = {cancelled};
                 UPDATE orders SET updated_at = {young} WHERE id = {redeemed};
                 UPDATE stock_returns SET done_at = NULL"
            ),
            "UPDATE stock_returns SET done_at = now()".to_owned(),
        ),
    ] {
        app.execute(&set).await;
        assert_eq!(deleted(&app.app).await, 0, "{why}");
        app.execute(&set_back).await;
    }
    assert_eq!(deleted(&app.app).await, 1, "nothing of the cancelled one is under way");
}

/// The second half: neither a log that is read again nor a sale that an older Redis has again makes an order.
#[tokio::test]
async fn a_claim_on_an_archived_sale_becomes_a_dead_letter_and_never_an_order() {
    for units in [1, 9] {
        let app = app().await;
        let coupon = app.create_flash(units).await;
        let order = app.paid_order(1, coupon).await;
        assert_eq!(app.redeem(order).await.status, 200);
        let keys = [vec![app.keys().coupon(coupon)], app.shard_keys(coupon).await].concat();
        for key in &keys {
            let _: i64 = app.redis(&["COPY", key, &format!("{key}:kept")]).await;
        }
        archive(&app, coupon).await;
        assert_eq!(replay(&app).await, (0, 1, 0), "it is an order");
        assert_eq!(deleted(&app.app).await, 1);
        let sold = app.sold(coupon).await;
        assert_eq!(replay(&app).await, (0, 0, 1), "of {units} units");
        assert_eq!(replay(&app).await, (0, 1, 0), "once");
        assert_eq!(rows(&app).await, [0, 0, 0, 0, 1]);
        assert_eq!(app.sold(coupon).await, sold);
        let letter = app.waiting("dead_letter").await[0].clone();
        assert_eq!(letter["reason"], "archived");
        let detail = letter["detail"].as_str().expect("a text");
        assert!(detail.starts_with(&format!("order {order} of user ")), "{letter}");
        // An older Redis has the sale again, with the order's buyer.
        for key in &keys {
            let _: String = app.redis(&["RENAME", &format!("{key}:kept"), key]).await;
        }
        assert_eq!(replay(&app).await, (0, 1, 0));
        let path = format!("/v1/dead-letters/{}/retry", letter["id"].as_str().expect("an id"));
        let retried = app.post(&path, &app.admin_token(), &json!({})).await;
        assert_eq!(retried.refusal(), (409, "sale_not_loaded"));
        assert_eq!(rows(&app).await, [0, 0, 0, 0, 1]);
        let _: i64 = app
            .redis(
                &[&["UNLINK"][..], &keys.iter().map(String::as_str).collect::<Vec<_>>()].concat(),
            )
            .await;
        let done = app
            .post("/v1/dead-letters/discard", &app.admin_token(), &json!({"reason": "archived"}))
            .await;
        assert_eq!(done.status, 200, "{done:?}");
        assert_eq!(rows(&app).await, [0, 0, 0, 0, 1], "a discarded one is no row either");
        assert!(app.reconcile().await.agrees());
        deleted(&app.app).await;
        assert_eq!(rows(&app).await, [0; 5], "a closed letter goes, too");
        assert!(app.reconcile().await.agrees());
    }
}

#[tokio::test]
async fn a_payment_of_an_order_that_may_have_been_deleted_is_held_for_an_administrator() {
    let app = app().await;
    let order = order_id::first_at(now() - chrono::TimeDelta::days(DAYS)) + 7;
    let notice = json!({"kind": "payment", "payment_id": "g", "order_id": order.to_string(), "method": 2, "amount_cents": 1});
    for _ in 0..2 {
        assert_eq!(app.confirm(&notice).await.text("outcome"), "held");
    }
    app.execute("UPDATE payments SET created_at = now() - interval '9 days'").await;
    app.refund_payments().await;
    let held = "SELECT count(*) FROM payments WHERE status = 'held' AND gateway_payment_id = 'g'";
    assert_eq!(app.number(held).await, 1, "its money may have been taken for the order");
}

/// More orders than a run looks at; those in front stay.
#[tokio::test]
async fn orders_that_stay_hold_up_no_others() {
    let app = app().await;
    app.expect_disagreements();
    let coupon = app.create_regular().await;
    let first = order_id::first_at(now() - chrono::TimeDelta::days(DAYS));
    let stay = i64::from(RETENTION_BATCH) * 10;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, pay_method, paid_at, redeemed_at,
                             updated_at, pay_cents, currency)
         SELECT {first} + n, {coupon}, 'regular', n, now(), CASE WHEN n > {stay} THEN 'redeemed' ELSE 'paid' END,
                'balance', now(), CASE WHEN n > {stay} THEN now() END, now() - interval '{DAYS} days', 1, 'CNY'
         FROM generate_series(1, {stay} + 3) AS n"
    ))
    .await;
    assert_eq!(deleted(&app.app).await, 0, "the others are paid");
    assert_eq!(deleted(&app.app).await, 3, "those behind them");
}
