//! Memory of the orders of buyers: repeats are answered without Redis while no unit has come back, and are never wrong
//! for long.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flash_sale::app::{App, start_housekeeping};
use flash_sale::base::clock::Clock;
use flash_sale::base::limits;
use flash_sale::sale::claim::memory::listening::Edition;
use flash_sale::sale::ids::{CouponId, OrderId};
use tokio::time::Instant;

use crate::support::{OwnServers, TestApp, eventually, user};

/// Longer than any test: an order that is remembered stays remembered.
const LONG: [&str; 2] = ["--sold-out-memory-ms", "60000"];

/// The order that this process tells the user without asking Redis.
fn remembered(process: &App, coupon: CouponId, id: i64) -> Option<OrderId> {
    process.memories.promised.order_of(coupon, user(id))
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
    assert!(calls < 100, "{calls} calls of scripts beside the passes");
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
    assert_eq!(app.give_back().await, 1);
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

#[tokio::test]
async fn a_memory_is_believed_for_a_time_while_the_process_listens_and_never_an_older_edition() {
    let app = TestApp::configured(&LONG).await;
    let coupon = app.create_flash(5).await;
    let memories = &app.app.memories;
    let server = app.app.stores.redis.link().await.expect("Redis answers").server().clone();
    let note = |id: i64, order: i64, additions, epoch, asked_at| {
        let edition = Edition { server: server.clone(), epoch, additions };
        let orders = [(user(id), OrderId::new(order).expect("an order id"))].into_iter();
        memories.promised.note(coupon, edition, asked_at, orders);
    };
    let told = |id| {
        memories.heard(Instant::now());
        remembered(&app.app, coupon, id).map(OrderId::get)
    };
    let before = Instant::now();
    note(1, 101, 3, 1, before);
    assert_eq!(told(1), None, "the process doesn't listen");
    memories.begin_listening(server.clone(), Arc::new(AtomicBool::new(true)));
    note(1, 101, 3, 1, before);
    assert_eq!(told(1), None, "a unit may have come back before the process listened");
    note(1, 101, 3, 1, Instant::now());
    note(2, 102, 3, 1, Instant::now());
    assert_eq!((told(1), told(2), told(3)), (Some(101), Some(102), None));
    note(3, 103, 2, 1, Instant::now());
    assert_eq!((told(1), told(3)), (Some(101), None), "an answer from before the last return");
    note(4, 104, 4, 1, Instant::now());
    assert_eq!((told(1), told(4)), (None, Some(104)), "a unit has come back");
    note(5, 105, 0, 2, Instant::now());
    assert_eq!((told(4), told(5)), (None, Some(105)), "another epoch");
    for id in 0..i64::try_from(limits::PROMISED_ORDERS_MAX).expect("it fits") {
        note(1_000 + id, 1_000 + id, 0, 2, Instant::now());
    }
    note(9, 109, 0, 2, Instant::now());
    assert_eq!((told(5), told(9)), (Some(105), None), "beyond the bound Redis is asked");
    memories.end_listening();
    assert_eq!(told(5), None);
}
