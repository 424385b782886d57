//! Bounds of one run of a pass: so many batches, and whether the next run needs no pause.

use flash_sale::sale::ids::CouponId;
use flash_sale::sale::pass::{Pass, Ran};

use crate::support::{Bounded, TestApp};

/// An app with a large sale, on whose rows the stores don't agree.
pub async fn app_with_sale() -> (TestApp, CouponId) {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(100_000).await;
    (app, coupon)
}

/// So many unpaid orders from this id on, which had to be paid until yesterday.
pub async fn late_orders(app: &TestApp, coupon: CouponId, first: i64, count: i64) {
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_by)
             SELECT n, {coupon}, 'flash', n, now() - interval '2 days', now() - interval '1 day'
             FROM generate_series({first}, {first} + {count} - 1) AS n;
         UPDATE flash_sales SET sold = sold + {count} WHERE coupon_id = {coupon}"
    ))
    .await;
}

#[tokio::test]
async fn an_expiry_closes_ten_batches_of_five_hundred_orders() {
    let (app, coupon) = app_with_sale().await;
    let mut first = 1;
    for (late, runs) in [
        (0, &[(0, false)][..]),
        (499, &[(499, false)]),
        (500, &[(500, false)]),
        (5_001, &[(5_000, true), (1, false)]),
    ] {
        late_orders(&app, coupon, first, late).await;
        first += late;
        for &(items, goes_on) in runs {
            let ran = app.app.expiry.pass().bounded().await.expect("Postgres answers");
            assert_eq!(ran, Ran { items, goes_on }, "{late} orders");
        }
    }
    assert_eq!(app.number("SELECT sold FROM flash_sales").await, 0);
}

/// A refused batch is closed coupon by coupon, and the next one follows in the same run.
#[tokio::test]
async fn an_expiry_goes_on_behind_a_batch_with_an_order_that_can_not_be_closed() {
    let (app, coupon) = app_with_sale().await;
    late_orders(&app, coupon, 1, 1_000).await;
    app.refuse("UPDATE", "orders", "(NEW.user_id = 7)", "23514").await;
    let ran = app.app.expiry.pass().bounded().await.expect("Postgres answers");
    assert_eq!(ran, Ran { items: 999, goes_on: false });
    assert_eq!(app.postponed().await, ["expiry 7 1"]);
    app.accept("orders").await;
    app.let_postponed_be_due().await;
    let ran = app.app.expiry.pass().bounded().await.expect("Postgres answers");
    assert_eq!(ran, Ran { items: 1, goes_on: false });
    assert_eq!(app.postponed().await, [""; 0]);
}

/// Cancelled orders with these numbers.
async fn cancelled_orders(app: &TestApp, coupon: &str, kind: &str, numbers: &str) {
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
             SELECT n, {coupon}, '{kind}', n, now(), 'cancelled', now() FROM {numbers} AS n
             ON CONFLICT DO NOTHING"
    ))
    .await;
}

/// Rows about orders that no user holds in Redis: nothing is given back, and the rows are done.
pub async fn open_returns(app: &TestApp, coupon: CouponId, what: &str, first: i64, count: i64) {
    let numbers = format!("generate_series({first}, {first} + {count} - 1)");
    cancelled_orders(app, &coupon.to_string(), "flash", &numbers).await;
    app.execute(&format!(
        "INSERT INTO stock_returns (order_id, what, coupon_id, user_id)
             SELECT n, '{what}', {coupon}, n FROM {numbers} AS n"
    ))
    .await;
}

#[tokio::test]
async fn stock_returns_end_at_ten_turns_of_a_thousand_rows() {
    let (app, coupon) = app_with_sale().await;
    let mut first = 1;
    for (units, places, runs) in [
        (0, 0, &[(0, false)][..]),
        (3, 20, &[(23, false)]),
        (1_000, 0, &[(1_000, false)]),
        (10_001, 0, &[(10_000, true), (1, false)]),
        (2, 10_001, &[(10_000, true), (3, false)]),
    ] {
        open_returns(&app, coupon, "unit", first, units).await;
        open_returns(&app, coupon, "place", first, places).await;
        first += units.max(places);
        for &(items, goes_on) in runs {
            let ran = app.app.stock_returns.pass().bounded().await.expect("both stores answer");
            assert_eq!(ran, Ran { items, goes_on }, "{units} units, {places} places");
        }
        let open = "SELECT count(*) FROM stock_returns WHERE done_at IS NULL";
        assert_eq!(app.number(open).await, 0);
    }
}

#[tokio::test]
async fn each_of_many_coupons_has_its_returns_in_one_run() {
    let (app, coupon) = app_with_sale().await;
    // Regular coupons have no sale in Redis, and places need none.
    app.execute(
        "INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents, currency)
             SELECT n << 10, 'regular', 't', '', '', 1, 2, 'CNY' FROM generate_series(1000, 1200) AS n",
    )
    .await;
    cancelled_orders(&app, "n << 10", "regular", "generate_series(1000, 1200)").await;
    cancelled_orders(&app, &coupon.to_string(), "flash", "generate_series(7, 7)").await;
    app.execute(&format!(
        "INSERT INTO stock_returns (order_id, what, coupon_id, user_id)
             SELECT n, 'place', n << 10, n FROM generate_series(1000, 1200) AS n;
         INSERT INTO stock_returns (order_id, what, coupon_id, user_id)
             VALUES (7, 'place', {coupon}, 7)"
    ))
    .await;
    let ran = app.app.stock_returns.pass().bounded().await.expect("both stores answer");
    assert_eq!(ran, Ran { items: 202, goes_on: false });
}

#[tokio::test]
async fn twenty_postponed_items_are_tried_again_in_one_run_those_due_for_longest_first() {
    let (app, _) = app_with_sale().await;
    app.execute(
        "INSERT INTO postponed (pass, item, error, next_try_at)
             SELECT 'expiry', n, 'no', now() - n * interval '1 second' FROM generate_series(1, 22) AS n;
         INSERT INTO postponed (pass, item, error, next_try_at) VALUES
             ('expiry', 77, 'no', now() + interval '1 hour'), ('archive', 78, 'no', now())",
    )
    .await;
    let tries = app.app.postponed.begin(Pass::Expiry).await.expect("Postgres answers");
    assert_eq!(tries.due(), (3..=22).collect::<Vec<i64>>());
}
