//! The law of conservation: every way to break it is found and named. A check is worth something only once it has
//! been seen to find a fault.

use std::sync::atomic::{AtomicUsize, Ordering};

use flash_sale::store::ids::CouponId;

use crate::support::{Bounded, TestApp, user, write_all};

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

/// Checks that these findings are named, perhaps among others.
async fn assert_named_among(app: &TestApp, expected: &[&str]) {
    let named: Vec<String> =
        app.reconcile().await.disagreements.iter().map(ToString::to_string).collect();
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
    assert_named(&app, &["its total is 6 in Redis and 5 in Postgres"]).await;
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
    assert_named(&app, &["user 2 was told order"]).await;
}

#[tokio::test]
async fn an_order_without_a_promise() {
    let (app, coupon) = two_orders().await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at) VALUES (9, {coupon}, 'flash', 3, now());
         UPDATE flash_sales SET sold = 3"
    ))
    .await;
    assert_named(&app, &["user 3 has order 9, but is no buyer by it in Redis"]).await;
}

#[tokio::test]
async fn an_order_with_another_id_than_was_promised() {
    let (app, coupon) = two_orders().await;
    app.set_buyer(coupon, 2, 77).await;
    assert_named(&app, &["user 2 was told order 77", "but is no buyer by it in Redis"]).await;
}

#[tokio::test]
async fn equal_counts_do_not_hide_that_two_orders_changed_hands() {
    let (app, coupon) = two_orders().await;
    let buyers = app.keys().buyers(coupon, 0);
    let orders: Vec<String> = app.redis(&["HMGET", &buyers, "1", "2"]).await;
    let _: i64 = app.redis(&["HSET", &buyers, "1", &orders[1], "2", &orders[0]]).await;
    let named = [1, 2].map(|n| format!("user {n} was told order {}", orders[2 - n]));
    let named_again = [1, 2].map(|n| format!("user {n} has order {}", orders[n - 1]));
    let named: Vec<&str> = named.iter().chain(&named_again).map(String::as_str).collect();
    assert_named(&app, &named).await;
    let sale = &app.reconcile().await.sales[0];
    assert_eq!((sale.buyers, sale.live_orders, sale.identical), (2, 2, false));
}

#[tokio::test]
async fn a_miscounted_sale() {
    let (app, _) = two_orders().await;
    app.execute("UPDATE flash_sales SET sold = 1").await;
    assert_named(&app, &["Postgres counts 1 as sold, but has 2 live orders. The second lock"])
        .await;
    app.execute("UPDATE flash_sales SET sold = 3").await;
    assert_named(&app, &["Postgres counts 3 as sold, but has 2 live orders. The last buyers"])
        .await;
}

#[tokio::test]
async fn a_closed_order_whose_unit_never_came_back() {
    let (app, coupon) = two_orders().await;
    app.execute(
        "UPDATE orders SET status = 'cancelled', cancelled_at = now() WHERE user_id = 2;
         UPDATE flash_sales SET sold = 1",
    )
    .await;
    assert_named(&app, &["of user 2 is closed, and nothing gives its unit back"]).await;
    app.forget_buyer(coupon, 2).await;
    let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", "1"]).await;
    assert_named(&app, &[]).await;
}

#[tokio::test]
async fn terms_that_differ_under_one_revision() {
    let (app, coupon) = two_orders().await;
    let key = app.keys().coupon(coupon);
    let _: i64 = app.redis(&["HSET", &key, "state", "paused", "opens_ms", "7"]).await;
    let start = "its start is 7 ms since 1970 in Redis and";
    assert_named(&app, &["its state is paused in Redis and active in Postgres", start]).await;
}

#[tokio::test]
async fn a_change_has_ten_seconds_to_get_through() {
    let (app, coupon) = two_orders().await;
    app.execute("UPDATE coupons SET state = 'paused', revision = 2, updated_at = now()").await;
    assert_named(&app, &[]).await;
    app.execute("UPDATE coupons SET updated_at = now() - interval '11 seconds'").await;
    assert_named(&app, &["Redis has revision 1, Postgres 2. A change doesn't get through"]).await;
    let key = app.keys().coupon(coupon);
    let _: i64 = app.redis(&["HSET", &key, "revision", "3"]).await;
    assert_named(&app, &["Redis has revision 3, Postgres only 2. Postgres has lost a change"])
        .await;
}

#[tokio::test]
async fn a_sale_that_cannot_be_read_is_a_finding_and_hides_no_other() {
    let (app, good) = two_orders().await;
    let bad = app.create_flash(5).await;
    let lost = app.create_flash(5).await;
    assert_eq!(app.claim(3, bad).await.status, 202);
    app.write_orders().await;
    app.lose_sale(lost).await;
    let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(good), "stock", "1"]).await;
    let key = app.keys().coupon(bad);
    let shard = app.shard_of(bad, 3).await;
    for (broken, field, value) in [
        (&shard, "unknown", "1"),
        (&shard, "77", "no-order"),
        (&key, "stock", "few"),
        (&key, "total", ""),
        (&key, "revision", "1.5"),
        (&key, "opens_ms", "soon"),
        (&key, "shards", "-1"),
    ] {
        let was: Option<String> = app.redis(&["HGET", broken, field]).await;
        let _: i64 = app.redis(&["HSET", broken, field, value]).await;
        let unreadable = format!("coupon {bad}: it can't be compared");
        let named = [&*unreadable, "total 5 is not stock 4 + buyers 2", "and is missing there"];
        assert_named_among(&app, &named).await;
        let _: i64 = match was {
            None => app.redis(&["HDEL", broken, field]).await,
            Some(was) => app.redis(&["HSET", broken, field, &was]).await,
        };
    }
    assert_named(&app, &["total 5 is not stock 4 + buyers 2", "and is missing there"]).await;

    // A value that Postgres can't store as it is.
    let _: i64 = app.redis(&["HSET", &shard, "a\0b", "1"]).await;
    let asked = app.compare().await;
    assert_eq!((asked.status, &asked.body["disagreements"]), (200, &4.into()), "{asked:?}");

    // A key of another type.
    let _: i64 = app.redis(&["DEL", &shard]).await;
    let _: i64 = app.redis(&["LPUSH", &shard, "x"]).await;
    let unreadable = format!("coupon {bad}: it can't be compared");
    assert_named_among(&app, &[&unreadable, "total 5 is not stock 4 + buyers 2"]).await;
    // The number is counted again, and unreadable keys are left alone.
    app.execute(&format!("UPDATE flash_sales SET sold = 1 WHERE coupon_id = {good}")).await;
    let asked = app.compare().await;
    assert_eq!((asked.status, app.sold(good).await), (200, 2));
}

#[tokio::test]
async fn an_open_dead_letter_is_no_disagreement() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    // Postgres counts all units as sold, so it refuses the order.
    app.execute("UPDATE flash_sales SET sold = 5").await;
    assert_eq!(app.write_orders().await.dead_letters, 1);
    app.execute("UPDATE flash_sales SET sold = 0").await;
    let report = app.reconcile().await;
    assert!(report.agrees() && report.at_rest, "{report:?}");
    assert_eq!((report.sales[0].in_review, report.sales[0].identical), (1, false));
    // Until an operator closes it without an order.
    app.execute("UPDATE dead_letters SET resolved_at = now()").await;
    assert_named(&app, &["user 1 was told order"]).await;
    app.expect_disagreements();
}

#[tokio::test]
async fn without_its_group_a_log_is_in_flight_as_a_whole() {
    let (app, coupon) = two_orders().await;
    assert_eq!(app.claim(3, coupon).await.status, 202);
    let log = app.log(coupon.lane());
    let _: i64 = app.redis(&["XGROUP", "DESTROY", &log, "order-writers"]).await;
    let report = app.reconcile().await;
    assert!(report.agrees() && !report.at_rest && report.in_flight > 0, "{report:?}");
    assert_eq!(app.write_orders().await.inserted, 1);
    assert!(app.reconcile().await.agrees());
}

/// An order under way is never taken for lost.
#[tokio::test]
async fn no_false_alarm_while_claims_are_written() {
    const BUSY: usize = 5;
    let app = TestApp::configured(&["--batch-orders-max", "50"]).await;
    let coupon = app.create_flash(100_000).await;
    // Comparisons that saw claims under way; the claims go on until there have been some.
    let busy = AtomicUsize::new(0);
    let goes_on = || busy.load(Ordering::SeqCst) < BUSY;
    let claims = async {
        for first in (1..).step_by(20).take_while(|_| goes_on()) {
            let calls = (first..first + 20).map(|n| app.app.claims.claim(coupon, user(n)));
            futures_util::future::try_join_all(calls).await.expect("Redis answers");
        }
    };
    let writes = async {
        let mut worker = app.workers().remove(0);
        worker.ensure_group().bounded().await.unwrap();
        while goes_on() {
            worker.write_job().bounded().await.unwrap();
            worker.tidy_up_job().bounded().await.unwrap();
        }
        write_all(&mut worker).await;
    };
    let checks = async {
        while goes_on() {
            let report = app.reconcile().await;
            assert!(report.agrees(), "{:#?}", report.disagreements);
            busy.fetch_add(usize::from(!report.at_rest), Ordering::SeqCst);
        }
    };
    tokio::join!(claims, writes, checks);
}

#[tokio::test]
async fn an_acknowledgement_without_a_row() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    assert!(app.reconcile().await.agrees(), "an entry in flight is accounted for");
    let worker = app.workers().remove(0);
    worker.ensure_group().bounded().await.unwrap();
    // A consumer acknowledges an entry that it hasn't written: the classic way to lose an order.
    let log = app.log(coupon.lane());
    let read = "local r = redis.call('XREADGROUP', 'GROUP', 'order-writers', 'x', 'STREAMS', KEYS[1], '>') return redis.call('XACK', KEYS[1], 'order-writers', r[1][2][1][1])";
    let _: i64 = app.redis(&["EVAL", read, "1", &log]).await;
    assert_named(&app, &["user 1 was told order"]).await;
    app.expect_disagreements();
}

#[tokio::test]
async fn a_pending_entry_that_was_deleted() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    app.workers().remove(0).ensure_group().bounded().await.unwrap();
    let log = app.log(coupon.lane());
    let read_and_delete = "local r = redis.call('XREADGROUP', 'GROUP', 'order-writers', 'x', 'STREAMS', KEYS[1], '>') return redis.call('XDEL', KEYS[1], r[1][2][1][1])";
    let _: i64 = app.redis(&["EVAL", read_and_delete, "1", &log]).await;
    assert_named(&app, &["user 1 was told order"]).await;
    app.expect_disagreements();
}
