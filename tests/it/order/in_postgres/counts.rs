//! Running counts of orders: which rows are added up, and for which coupon.

use std::collections::BTreeMap;

use flash_sale::base::limits;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::order::counts::{self, LiveOrders};

use super::pool;
use crate::support::{Bounded, TestApp, lane, sale};

/// Coupons 1 and 2 are sales, 3 is regular and 4 has no row. Half of the orders are added up, and one has moved.
async fn counted() -> TestApp {
    let app = TestApp::with_sales(2).await;
    app.execute(
        "INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents)
         VALUES (3 << 10, 'regular', '', '', '', 1, 1);
         INSERT INTO moved_order_counts VALUES (1024, 'redeemed', 1), (1024, 'expired', 0), (4 << 10, 'expired', 5)",
    )
    .await;
    app.write_rows(&[
        (1, 1, "flash", 1, "unpaid"),
        (2, 1, "flash", 2, "paid"),
        (3, 2, "flash", 3, "unpaid"),
    ])
    .await;
    app.app.order_counts.pass().bounded().await.expect("Postgres answers");
    app.write_rows(&[
        (4, 1, "flash", 4, "unpaid"),
        (5, 1, "flash", 5, "cancelled"),
        (6, 2, "flash", 6, "redeemed"),
        (7, 3, "regular", 7, "unpaid"),
    ])
    .await;
    // No order is paid any more, and its count is 0.
    app.execute("UPDATE orders SET status = 'redeemed', redeemed_at = now() WHERE id = 2").await;
    app
}

fn of(counts: &[(&str, i64)]) -> BTreeMap<String, i64> {
    counts.iter().map(|&(status, orders)| (status.to_owned(), orders)).collect()
}

#[tokio::test]
async fn of_coupon_adds_up_the_counts_the_changes_and_the_history_of_one_coupon() {
    let app = counted().await;
    for (number, expected) in [
        (1, of(&[("unpaid", 2), ("redeemed", 2), ("cancelled", 1)])),
        (2, of(&[("unpaid", 1), ("redeemed", 1)])),
        (3, of(&[("unpaid", 1)])),
        (4, of(&[("expired", 5)])),
        (5, of(&[])),
    ] {
        let counts = counts::of_coupon(pool(&app), sale(number)).await.expect("Postgres answers");
        assert_eq!(counts, expected, "coupon {number}");
    }
}

#[tokio::test]
async fn all_orders_are_counted_by_status_and_those_of_flash_coupons_by_lane() {
    let app = counted().await;
    let all = counts::all(pool(&app)).await.expect("Postgres answers");
    let expected = of(&[("unpaid", 4), ("redeemed", 3), ("cancelled", 1), ("expired", 5)]);
    assert_eq!(all.of_status, expected);
    // A coupon without a row counts as a flash coupon.
    assert_eq!(all.of_lane, [(lane().get(), 12)].into());
}

#[tokio::test]
async fn live_orders_are_those_of_each_sale_that_is_asked_about() {
    let app = counted().await;
    app.execute("INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents)
                 VALUES (5 << 10, 'flash', '', '', '', 1, 1);
                 INSERT INTO flash_sales (coupon_id, opens_at, closes_at, total) VALUES (5 << 10, '2024-01-01', '2024-01-02', 8)")
        .await;
    let digest = async |coupon: CouponId| {
        let digests = format!(
            "SELECT coalesce(sum(digest_of_order(status, id, user_id)), 0)::text FROM orders WHERE coupon_id = {coupon}"
        );
        app.texts(&digests).await.remove(0)
    };
    let asked = [1, 2, 5].map(sale);
    let live = counts::live(pool(&app), &asked).await.expect("Postgres answers");
    assert_eq!(live.len(), 3);
    for (number, orders, total, sold) in [(1, 3, 101, 1), (2, 2, 102, 2), (5, 0, 8, 0)] {
        let digest = digest(sale(number)).await;
        let expected = LiveOrders { orders, digest, total, sold };
        assert_eq!(live[&sale(number)], expected, "sale {number}");
    }
    let one = counts::live(pool(&app), &asked[..1]).await.expect("Postgres answers");
    assert_eq!(one.len(), 1, "and of no other");
}

/// Another process adds up the first changes at the same moment.
#[tokio::test]
async fn add_up_takes_a_batch_of_changes_and_leaves_those_of_another_process() {
    let app = TestApp::with_sales(2).await;
    app.write_rows(&[(1, 1, "flash", 1, "unpaid")]).await;
    app.app.order_counts.pass().bounded().await.expect("Postgres answers");
    app.write_rows(&[(2, 2, "flash", 2, "paid"), (3, 1, "flash", 3, "paid")]).await;
    app.write_rows(&[(4, 1, "flash", 4, "unpaid")]).await;
    let other =
        app.holding("SELECT FROM order_count_changes WHERE coupon_id = 2048 FOR UPDATE").await;
    app.app.order_counts.pass().bounded().await.expect("Postgres answers");
    let left = "SELECT coupon_id >> 10 FROM order_count_changes";
    assert_eq!(app.numbers(left).await, [2], "no pass waits for another");
    let counts = "SELECT concat_ws(' ', coupon_id >> 10, status, orders) FROM order_counts ORDER BY coupon_id, status";
    assert_eq!(app.texts(counts).await, ["1 paid 1", "1 unpaid 2"]);
    let digests = "SELECT (sum(digest) = (SELECT sum(digest_of_order(status, id, user_id)) FROM orders
                                          WHERE coupon_id = 1024))::integer::bigint FROM order_counts";
    assert_eq!(app.number(digests).await, 1);
    other.rollback().await.expect("Postgres answers");
    app.app.order_counts.pass().bounded().await.expect("Postgres answers");
    assert_eq!(app.numbers(left).await, [0; 0]);
}

/// Two processes lock the counts that they raise in one order.
#[tokio::test]
async fn add_up_raises_the_counts_in_the_order_of_the_coupons() {
    let app = TestApp::with_sales(2).await;
    let orders = [(1, 1, "flash", 1, "unpaid"), (2, 2, "flash", 2, "unpaid")];
    app.write_rows(&orders).await;
    app.app.order_counts.pass().bounded().await.expect("Postgres answers");
    app.write_rows(&[(3, 2, "flash", 3, "unpaid"), (4, 1, "flash", 4, "unpaid")]).await;
    let other = app.holding("SELECT FROM order_counts WHERE coupon_id = 1024 FOR UPDATE").await;
    let looking = async {
        app.a_session_waits_for_a_row().await;
        let free =
            "SELECT coupon_id >> 10 FROM order_counts ORDER BY coupon_id FOR UPDATE SKIP LOCKED";
        let free = app.numbers(free).await;
        other.rollback().await.expect("Postgres answers");
        free
    };
    let (added, free) = tokio::join!(app.app.order_counts.pass(), looking);
    added.expect("Postgres answers");
    assert_eq!(free, [2], "it waits for the first, and has not come to the second");
}

#[tokio::test]
async fn add_up_goes_on_until_a_batch_is_not_full() {
    let app = TestApp::with_sales(2).await;
    let batch = limits::ORDER_COUNTS_BATCH;
    let passes = i64::try_from(limits::PASS_BATCHES_MAX).expect("a small number");
    app.execute(&format!(
        "INSERT INTO order_count_changes (coupon_id, status, orders, digest)
         SELECT CASE n WHEN 1 THEN 2048 ELSE 1024 END, 'unpaid', 1, 1 FROM generate_series(1, {batch} * {passes} + 1) AS n"
    ))
    .await;
    app.execute("UPDATE order_count_audit SET next_at = 'infinity'").await;
    let left = async || app.numbers("SELECT coupon_id >> 10 FROM order_count_changes").await;
    app.app.order_counts.pass().bounded().await.expect("Postgres answers");
    assert_eq!(left().await, [2], "a pass has a bound, and begins with the first coupon");
    app.app.order_counts.pass().bounded().await.expect("Postgres answers");
    assert_eq!(left().await, [0; 0]);
    let counted = "SELECT orders FROM order_counts ORDER BY coupon_id";
    assert_eq!(app.numbers(counted).await, [batch * passes, 1]);
}

/// The audit corrects the counts of one coupon, also where the digest alone is wrong, and rests for some seconds.
#[tokio::test]
async fn an_audit_corrects_one_coupon_and_rests() {
    for (wrong, expected) in [
        ("UPDATE order_counts SET orders = orders + 3", "unpaid -3 t"),
        ("UPDATE order_counts SET digest = digest + 3", "unpaid 0 f"),
        ("UPDATE order_counts SET orders = orders", ""),
    ] {
        let app = TestApp::with_sales(2).await;
        app.write_rows(&[(1, 1, "flash", 1, "unpaid"), (2, 2, "flash", 2, "unpaid")]).await;
        app.execute("UPDATE order_count_audit SET next_at = 'infinity'").await;
        app.app.order_counts.pass().bounded().await.expect("Postgres answers");
        app.execute(&format!(
            "{wrong}; UPDATE order_count_audit SET next_at = now(), corrected = 5"
        ))
        .await;
        let audited = app.app.order_counts.audit_next().bounded().await.expect("Postgres answers");
        assert_eq!(audited, Some(sale(1)), "{wrong}");
        let changes = "SELECT concat_ws(' ', coupon_id >> 10, status, orders, digest = 0) FROM order_count_changes";
        let expected = if expected.is_empty() { vec![] } else { vec![format!("1 {expected}")] };
        assert_eq!(app.texts(changes).await, expected, "{wrong}");
        let corrected = 5 + i64::try_from(expected.len()).expect("one");
        assert_eq!(app.number("SELECT corrected FROM order_count_audit").await, corrected);
        let soon = "SELECT count(*) FROM order_count_audit
                    WHERE next_at > now() AND next_at < now() + interval '4 min'";
        assert_eq!(app.number(soon).await, 1, "a pause, and shorter than the time of a count");
    }
}
