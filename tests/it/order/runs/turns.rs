//! Turns of coupons: which of them ask for a further round, in which another coupon gets its unit back.

use flash_sale::base::limits::GIVE_BACK_UNITS_MAX;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::pass::Ran;

use super::raise_epoch;
use crate::support::buyers::FIRST_ORDER_BY_HAND;
use crate::support::{Bounded, TestApp};

/// A sale whose lane has an epoch that this process doesn't know: the unit of its cancelled order comes back in the second
/// round of a pass, if there is one.
async fn stale(app: &TestApp, coupon: CouponId, buyer: i64) {
    let order = app.order(buyer, coupon).await;
    assert_eq!(app.cancel(buyer, order).await.status, 200);
}

/// So many coupons, by their ids.
async fn coupons<const N: usize>(app: &TestApp, units: i64) -> [CouponId; N] {
    let mut coupons = Vec::new();
    for _ in 0..N {
        coupons.push(app.create_flash(units).await);
    }
    coupons.sort_by_key(|coupon| coupon.get());
    coupons.try_into().expect("as many")
}

async fn pass(app: &TestApp) -> Ran {
    app.app.stock_returns.pass().bounded().await.expect("both stores answer")
}

fn ran(items: usize) -> Ran {
    Ran { items, goes_on: false }
}

/// Writes cancelled orders by hand of the users of these numbers, the first of which has waited for the longest time.
async fn write_returns(app: &TestApp, coupon: CouponId, (first, last): (i64, i64)) {
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
         SELECT {FIRST_ORDER_BY_HAND} + n, {coupon}, 'flash', n, now(), 'cancelled', now()
         FROM generate_series({first}, {last}) AS n;
         INSERT INTO stock_returns (order_id, coupon_id, user_id, updated_at)
         SELECT {FIRST_ORDER_BY_HAND} + n, {coupon}, n, now() - interval '1 day' + n * interval '1 s'
         FROM generate_series({first}, {last}) AS n"
    ))
    .await;
}

/// The row of the first sale, which is archived, can't be closed by the epoch before; the second sale learns of the new one,
/// and the third knows it by then. Each has its turn once, and none of them is full.
#[tokio::test]
async fn a_round_has_one_turn_for_each_coupon_and_is_the_last_if_no_turn_was_full() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let sales @ [archived, second, third] = coupons(&app, 9).await;
    for (buyer, coupon) in (1..).zip(sales) {
        stale(&app, coupon, buyer).await;
    }
    app.execute(&format!(
        "UPDATE flash_sales SET archived_at = now() WHERE coupon_id = {archived}"
    ))
    .await;
    raise_epoch(&app, 2, &sales).await;
    assert_eq!((pass(&app).await, app.stock(second).await), (ran(1), 8));
    assert_eq!((app.stock(archived).await, app.stock(third).await), (8, 9));
    assert_eq!((pass(&app).await, app.stock(second).await), (ran(2), 9));
    assert_eq!((app.stock(archived).await, app.stock(third).await), (8, 9));
}

/// A turn that was full, and was cut off by the failure of its sale.
#[tokio::test]
async fn a_full_turn_that_has_failed_asks_for_no_further_round() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let sales @ [first, broken] = coupons(&app, 9).await;
    stale(&app, first, 2_000).await;
    // The last of a thousand is a buyer, whose unit Redis can't take back.
    write_returns(&app, broken, (1, 1_000)).await;
    app.set_buyer(broken, 1_000, FIRST_ORDER_BY_HAND + 1_000).await;
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(broken), "returns", "many"]).await;
    raise_epoch(&app, 2, &sales).await;
    // Seven parts of 128.
    assert_eq!((pass(&app).await, app.stock(first).await), (ran(896), 8));
    assert_eq!(app.postponed().await, [format!("stock_returns {broken} 1")]);
}

/// Of a full turn one row could be closed, and the dead letters wait.
#[tokio::test]
async fn a_full_turn_that_has_closed_one_row_asks_for_a_further_round() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let sales @ [first, full] = coupons(&app, 1_000).await;
    stale(&app, first, 2_000).await;
    // Users 1 to 999 hold units by letters, and user 1000 by a live order; Postgres has a unit for that one alone. The unit
    // of user 2001 has come back before.
    app.sell_out_by_hand(full, 1_000).await;
    write_returns(&app, full, (1, 999)).await;
    write_returns(&app, full, (2_001, 2_001)).await;
    app.execute(&format!(
        "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, resolved_at)
         SELECT 0, user_id || '-1', '{{}}', 'oversold', '', coupon_id, user_id, order_id, now() FROM stock_returns
         WHERE coupon_id = {full} AND user_id < 1000;
         INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
             VALUES ({FIRST_ORDER_BY_HAND} + 1000, {full}, 'flash', 1000, now());
         UPDATE flash_sales SET total = 1, sold = 1 WHERE coupon_id = {full}"
    ))
    .await;
    raise_epoch(&app, 2, &sales).await;
    assert_eq!((pass(&app).await, app.stock(first).await), (ran(2), 1_000));
    assert_eq!(app.postponed().await, [format!("withdrawals {full} 1")]);
}

/// The first part of a turn is refused, and the buyer stands in the second one.
#[tokio::test]
async fn give_back_stops_at_a_part_that_is_refused_for_its_epoch() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let [coupon] = coupons(&app, 9).await;
    let last = i64::try_from(GIVE_BACK_UNITS_MAX).expect("a few") + 1;
    write_returns(&app, coupon, (1, last)).await;
    app.set_buyer(coupon, last, FIRST_ORDER_BY_HAND + last).await;
    raise_epoch(&app, 2, &[coupon]).await;
    assert_eq!((pass(&app).await, app.stock(coupon).await), (ran(0), 9));
    assert_eq!((pass(&app).await, app.stock(coupon).await), (ran(GIVE_BACK_UNITS_MAX + 1), 10));
}
