//! Memory of the orders of buyers: repeats are answered without Redis while no unit has come back, and are never wrong
//! for long.

use flash_sale::app::{App, start_housekeeping};
use flash_sale::base::clock::Clock;
use flash_sale::store::ids::{CouponId, OrderId};

use crate::support::{OwnServers, TestApp, eventually, user};

/// Longer than any test: an order that is remembered stays remembered.
const LONG: [&str; 2] = ["--sold-out-memory-ms", "60000"];

/// The order that this process tells the user without asking Redis.
fn remembered(process: &App, coupon: CouponId, id: i64) -> Option<OrderId> {
    process.memories.first().accepted.order_of(coupon, user(id))
}

/// Claims until the order is remembered. Returns the order.
async fn claim_and_remember(app: &TestApp, coupon: CouponId, id: i64) -> i64 {
    eventually("the order is remembered", async || {
        app.claim(id, coupon).await;
        remembered(&app.app, coupon, id).is_some()
    })
    .await;
    app.claim(id, coupon).await.order_id()
}

/// Calls of scripts so far.
async fn script_calls(app: &TestApp) -> u64 {
    let stats: String = app.redis(&["INFO", "commandstats"]).await;
    let calls = stats.lines().find_map(|line| {
        line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next()?.parse().ok()
    });
    calls.unwrap_or(0)
}

#[tokio::test]
async fn repeats_are_answered_without_redis_and_name_the_first_order() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &LONG, Clock::System).await;
    start_housekeeping(&app.app);
    let coupon = app.create_flash(5).await;
    let order = claim_and_remember(&app, coupon, 1).await;
    let before = script_calls(&app).await;
    for _ in 0..200 {
        let repeat = app.claim(1, coupon).await;
        assert_eq!((repeat.refusal(), repeat.order_id()), ((409, "already_claimed"), order));
    }
    let calls = script_calls(&app).await - before;
    assert!(calls < 100, "{calls} calls of scripts beside the jobs");
    assert_eq!(remembered(&app.app, coupon, 2), None, "another user is no buyer");
    assert_eq!(app.claim(2, coupon).await.status, 202);
}

#[tokio::test]
async fn a_unit_that_comes_back_ends_the_memory_of_every_process() {
    let app = TestApp::configured(&LONG).await;
    let other = app.another_instance().await;
    for process in [&app.app, &other] {
        start_housekeeping(process);
    }
    let coupon = app.create_flash(5).await;
    let order = claim_and_remember(&app, coupon, 1).await;
    eventually("the other process remembers it, too", async || {
        other.claims.claim(coupon, user(1)).await.expect("Redis answers");
        remembered(&other, coupon, 1).is_some()
    })
    .await;
    app.write_orders().await;
    assert_eq!(app.cancel(1, order).await.status, 200);
    assert_eq!(app.release().await, 1);
    for process in [&app.app, &other] {
        eventually("it is forgotten", async || remembered(process, coupon, 1).is_none()).await;
    }
    let again = app.claim(1, coupon).await;
    assert_eq!(again.status, 202);
    assert_ne!(again.order_id(), order);
    eventually("the new order is remembered", async || {
        other.claims.claim(coupon, user(1)).await.expect("Redis answers");
        remembered(&other, coupon, 1).is_some_and(|told| told.get() == again.order_id())
    })
    .await;
}
