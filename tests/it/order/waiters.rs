//! Requests that wait for their order: together they cost one connection and one query at a time, and each is
//! answered.

use std::time::Instant;

use flash_sale::base::limits;
use flash_sale::store::ids::OrderId;
use futures_util::future::join_all;

use crate::support::process::backlog;
use crate::support::{TestApp, bounded, eventually, patience, user};

/// As many as may wait.
const WAITERS: i64 = limits::PREFER_WAITERS_MAX as i64;

#[tokio::test]
async fn requests_that_wait_hold_one_connection_all_together() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(WAITERS).await;
    let lock = app.holding("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE").await;

    let began = Instant::now();
    let claims = join_all((1..=WAITERS).map(|id| app.claim_preferring(id, coupon, "wait=10")));
    let watching = async {
        let mut waiting_max = 0;
        eventually("all have claimed, and a check waits for the table", async || {
            let waiting = app
                .number(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                     AND wait_event_type = 'Lock' AND query LIKE '%FROM orders%'",
                )
                .await;
            waiting_max = waiting_max.max(waiting);
            waiting_max > 0 && app.buyers_count(coupon).await == WAITERS
        })
        .await;
        lock.rollback().await.expect("Postgres answers");
        app.write_orders().await;
        waiting_max
    };
    let both = async { tokio::join!(claims, watching) };
    let (replies, waiting_max) = bounded("all are told", both).await;
    // A look that is given up leaves its connection in the queue for the table.
    let checks = 1 + began.elapsed().as_secs() / limits::PREFER_CHECK_MAX.as_secs();
    assert!(waiting_max <= checks as i64, "{waiting_max} connections wait for orders");
    for reply in replies {
        // On a slow machine the ten seconds of a request may be over first.
        let told = (reply.status, reply.text("status"));
        assert!([(201, "unpaid"), (202, "pending")].contains(&told), "{told:?}");
    }
    assert_eq!(app.app.order_waiters.count(), 0);
}

#[tokio::test]
async fn an_order_is_told_to_its_buyer_only_and_beyond_the_bound_nobody_waits() {
    let app = TestApp::start().await;
    let promised = backlog(&app, WAITERS).await;
    let waiters = &app.app.order_waiters;
    let orders = promised.values().copied();
    let orders: Vec<OrderId> = orders.map(|order| OrderId::new(order).expect("an id")).collect();
    let stranger = waiters.wait(user(2), orders[0], patience());
    let buyers = async {
        let buyers = (2..).zip(&orders[1..]);
        join_all(buyers.map(|(id, order)| waiters.wait(user(id), *order, patience()))).await
    };
    let writing = async {
        eventually("all wait", async || waiters.count() as i64 == WAITERS).await;
        let one_too_many = OrderId::new(1).expect("an id");
        assert_eq!(waiters.wait(user(1), one_too_many, patience()).await, None);
        app.write_orders().await;
    };
    tokio::select! {
        biased;
        told = stranger => panic!("another user's order: {told:?}"),
        (told, ()) = async { tokio::join!(buyers, writing) } => {
            assert!(told.iter().all(Option::is_some));
        }
    }
    assert_eq!(waiters.count(), 0, "a client that has gone waits no longer");
}
