//! The bound on orders that one user leaves closed of one coupon within an hour.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use flash_sale::kit::id::first_at;
use flash_sale::sale::ids::{CouponId, OrderId};
use flash_sale::sale::order::write::ClosedOrders;

use crate::support::{TestApp, user};

/// An order that was claimed so many seconds before this time, by its id.
async fn order(app: &TestApp, coupon: CouponId, at: DateTime<Utc>, seconds: i64, status: &str) {
    let id = first_at(at - TimeDelta::seconds(seconds)) + 1;
    let cancelled = if status == "cancelled" { "now()" } else { "NULL" };
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
             VALUES ({id}, {coupon}, 'regular', 1, now(), '{status}', {cancelled})"
    ))
    .await;
}

#[tokio::test]
async fn a_regular_coupon_is_claimed_again_once_the_oldest_closed_order_counts_no_more() {
    let app = TestApp::start().await;
    let [coupon, other] = [app.create_regular().await, app.create_regular().await];
    let at: DateTime<Utc> = "2026-11-21T12:00:00Z".parse().expect("a time");
    let orders = &app.app.orders;
    let next = OrderId::new(first_at(at) + 5).expect("an id");
    for (seconds, most, wait) in [
        (100, 0, None),
        (100, 1, Some(3_501)),
        (90, 2, Some(3_501)),
        (90, 3, None),
        (4_000, 3, None),
        (3_599, 3, Some(2)),
    ] {
        let closed = "SELECT count(*) FROM orders WHERE status = 'cancelled' AND id = ";
        let id = first_at(at - TimeDelta::seconds(seconds)) + 1;
        if app.number(&format!("{closed}{id}")).await == 0 {
            order(&app, coupon, at, seconds, "cancelled").await;
        }
        let bound = ClosedOrders { most };
        let found = orders.closed_orders_wait(next, coupon, user(1), bound).await;
        assert_eq!(found.expect("Postgres answers"), wait.map(Duration::from_secs), "{most}");
        let inserted = orders.insert_regular(next, coupon, user(1), bound).await;
        assert_eq!(inserted.expect("Postgres answers"), wait.is_none(), "{most}");
        app.execute(&format!("DELETE FROM orders WHERE id = {next}")).await;
    }
    let bound = ClosedOrders { most: 1 };
    for (coupon, buyer) in [(other, 1), (coupon, 2)] {
        let found = orders.closed_orders_wait(next, coupon, user(buyer), bound).await;
        assert_eq!(found.expect("Postgres answers"), None, "another coupon, or another user");
    }
    order(&app, coupon, at, 10, "unpaid").await;
    let free = ClosedOrders { most: 0 };
    let second = orders.insert_regular(next, coupon, user(1), free).await;
    assert!(!second.expect("Postgres answers"), "one is unpaid");
    let flash = app.create_flash(5).await;
    let refused = orders.insert_regular(next, flash, user(1), free).await;
    assert!(!refused.expect("Postgres answers"), "it is no regular coupon");
}
