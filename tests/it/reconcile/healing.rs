//! What a comparison puts right.

use flash_sale::store::ids::CouponId;
use flash_sale::store::postgres;
use serde_json::json;

use crate::support::{Bounded, TestApp, eventually};

/// Reads the unread entries as another consumer, and acknowledges them without writing them: the classic way to lose
/// an order.
const ACKNOWLEDGE_UNWRITTEN: &str =
    "local read = redis.call('XREADGROUP', 'GROUP', 'order-writers', 'x', 'STREAMS', KEYS[1], '>')
    if not read then return 0 end
    for _, entry in ipairs(read[1][2]) do redis.call('XACK', KEYS[1], 'order-writers', entry[1]) end
    return #read[1][2]";

async fn lose_entries(app: &TestApp, coupon: CouponId) -> i64 {
    app.workers().remove(0).ensure_group().bounded().await.expect("Redis answers");
    app.redis(&["EVAL", ACKNOWLEDGE_UNWRITTEN, "1", &app.log(coupon.lane())]).await
}

/// The lane is closed for a moment, by any comparison, and its recovery makes orders of such buyers.
#[tokio::test]
async fn a_lost_order_is_written_with_the_id_that_was_promised() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let order = app.claim(1, coupon).await.order_id();
    assert_eq!(lose_entries(&app, coupon).await, 1);

    let compared = app.compare().await;
    assert_eq!((compared.status, &compared.body["disagreements"]), (200, &json!(1)));
    app.recover().await;
    let mine = app.my_claim(1, coupon).await;
    assert_eq!((mine.order_id(), mine.text("status")), (order, "unpaid"));
    let off = "SELECT abs(extract(epoch FROM claimed_at - created_at))::bigint FROM orders";
    assert!(app.number(off).await < 60, "it was claimed just now");
    assert!(app.reconcile().await.agrees());
    assert_eq!(app.number("SELECT sales_kept FROM recoveries").await, 1, "nothing else differs");

    // The entry is a repeat if it turns up after all.
    let log = app.log(coupon.lane());
    let _: i64 = app.redis(&["XGROUP", "DESTROY", &log, "order-writers"]).await;
    let report = app.write_orders().await;
    assert_eq!((report.inserted, report.repeated, report.dead_letters), (0, 1, 0));
}

#[tokio::test]
async fn a_lost_order_whose_id_is_taken_becomes_a_dead_letter() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let order = app.claim(1, coupon).await.order_id();
    lose_entries(&app, coupon).await;
    let regular = app.create_regular().await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at) VALUES ({order}, {regular}, 'regular', 9, now())"
    ))
    .await;
    for _ in 0..2 {
        app.compare().await;
        app.recover().await;
        assert_eq!(app.number("SELECT count(*) FROM dead_letters").await, 1);
    }
    let mine = app.my_claim(1, coupon).await;
    assert_eq!((mine.order_id(), mine.text("status")), (order, "in_review"));
}

#[tokio::test]
async fn sold_is_counted_again() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    for user in 1..=2 {
        app.claim(user, coupon).await;
    }
    app.write_orders().await;
    for wrong in [0, 1, 5] {
        app.execute(&format!("UPDATE flash_sales SET sold = {wrong}")).await;
        assert_eq!(app.compare().await.body["findings"][0]["code"], "sold_miscounted");
        assert_eq!(app.sold(coupon).await, 2);
        assert_eq!(app.compare().await.body["disagreements"], 0);
    }
    // A `sold` above the number of units can't be counted away.
    app.execute("UPDATE flash_sales SET sold = 1, total = 1").await;
    for _ in 0..2 {
        let found = app.compare().await;
        assert_ne!(found.body["disagreements"], 0, "{found:?}");
    }
    app.expect_disagreements();
}

#[tokio::test]
async fn sold_is_counted_again_beside_orders_that_are_being_written() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    app.claim(1, coupon).await;
    app.write_orders().await;
    app.execute("UPDATE flash_sales SET sold = 0").await;
    // A worker is in the middle of writing an order: the row is there, and `sold` has just been changed.
    let mut other = postgres::begin(&app.app.stores.pool).await.unwrap();
    let insert = format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at) VALUES (9, {coupon}, 'flash', 2, now());
         UPDATE flash_sales SET sold = sold + 1, updated_at = now()"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(insert)).execute(&mut *other).await.unwrap();
    let compared = app.compared();
    let commit = async {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
        eventually("the count waits", async || app.number(waits).await == 1).await;
        other.commit().await.unwrap();
    };
    tokio::join!(compared, commit);
    assert_eq!(app.number("SELECT sold FROM flash_sales").await, 2);
    app.expect_disagreements();
}

#[tokio::test]
async fn a_unit_that_never_came_back_comes_back_once() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    for user in 1..=2 {
        let order = app.order(user, coupon).await;
        assert_eq!(app.cancel(user, order).await.status, 200);
    }
    // One was written down as done and wasn't, the other was never written down.
    app.execute(
        "UPDATE stock_returns SET done_at = now() WHERE user_id = 1; DELETE FROM stock_returns WHERE user_id = 2",
    )
    .await;
    assert_eq!((app.release().await, app.stock(coupon).await), (0, 3));
    assert_eq!(app.compare().await.body["disagreements"], 2);
    for _ in 0..2 {
        app.recover().await;
        assert_eq!((app.release().await, app.stock(coupon).await), (0, 5));
        assert_eq!(app.compare().await.body["disagreements"], 0);
    }
    assert!(app.reconcile().await.sales[0].identical);
}
