//! Requests that wait for their order: together they cost one connection and one query at a time, and each is
//! answered.

use std::collections::BTreeMap;
use std::time::Instant;

use flash_sale::app::App;
use flash_sale::base::limits;
use flash_sale::sale::ids::OrderId;
use flash_sale::sale::order::model::Order;
use futures_util::future::join_all;
use sqlx::{Connection, PgConnection};

use crate::support::played::{Still, soon};
use crate::support::process::backlog;
use crate::support::{TestApp, bounded, eventually, patience, user};

/// As many as may wait.
const WAITERS: i64 = limits::PREFER_WAITERS_MAX as i64;
/// Looks before the orders are written.
const LOOKS: i64 = 20;

#[tokio::test]
async fn requests_that_wait_hold_one_connection_all_together() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(WAITERS).await;
    let lock = app.holding("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE").await;

    let began = Instant::now();
    let claims = join_all((1..=WAITERS).map(|id| app.claim_preferring(id, coupon, "wait=10")));
    let watching = async {
        let mut waiting_max = 0;
        eventually("all have claimed, and a look waits for the table", async || {
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
    let looks = 1 + began.elapsed().as_secs() / limits::PREFER_LOOK_MAX.as_secs();
    assert!(waiting_max <= looks as i64, "{waiting_max} connections wait for orders");
    for reply in replies {
        // On a slow machine the ten seconds of a request may be over first.
        let told = (reply.status, reply.text("status"));
        assert!([(201, "unpaid"), (202, "pending")].contains(&told), "{told:?}");
    }
    assert_eq!(app.app.order_waiters.count(), 0);
}

#[tokio::test]
async fn requests_that_wait_cost_one_query_for_each_look_and_each_is_told_its_order() {
    let app = TestApp::start().await;
    let promised = backlog(&app, WAITERS).await;
    // Another process writes the orders than the one that looks.
    let other = app.another_instance().await;
    let before = transactions(&app).await;
    let writing = async {
        let looked = async || looks(&other) >= LOOKS;
        eventually("it looks again and again", looked).await;
        assert_eq!(other.order_waiters.count() as i64, WAITERS);
        assert_eq!(app.write_orders().await.inserted as i64, WAITERS);
    };
    let (told, ()) = tokio::join!(wait_for(&other, &promised), writing);
    for (id, order) in &promised {
        let written = told[id].as_ref().unwrap_or_else(|| panic!("user {id} was not told"));
        assert_eq!((written.user_id, written.order_id.get()), (user(*id), *order));
    }

    // The transactions of a connection are counted when it is closed, at the latest.
    let looks = looks(&other);
    other.stores.pool.close().await;
    eventually("the queries are counted", async || transactions(&app).await >= before + looks)
        .await;
    let others = transactions(&app).await - before - looks;
    println!("{looks} looks for {WAITERS} orders, and {others} other transactions");
    assert!(others < looks * WAITERS / 4, "{others} transactions beside {looks} looks");
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

/// A look waits for the table for 50 ms.
#[tokio::test]
async fn look_while_requests_wait_pauses_for_nine_times_as_long_as_the_look_has_taken() {
    let app = TestApp::start().await;
    let pool = &app.app.stores.pool;
    let lock = app.holding("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE").await;
    let period = u64::try_from(limits::PREFER_LOOK_PERIOD.as_millis()).expect("small");
    let pause = 50 * u64::from(limits::PREFER_LOOK_PAUSES);
    let clock = Still::begin();
    let looking = async {
        clock.settle().await;
        clock.advance(period + 1).await;
        soon("it looks", || looks(&app.app) == 1).await;
        clock.advance(50).await;
        lock.rollback().await.expect("Postgres answers");
        let has_ended = || u32::try_from(pool.num_idle()).is_ok_and(|idle| idle == pool.size());
        soon("the look has ended", has_ended).await;
        clock.settle().await;
        clock.advance(pause - 5).await;
        assert_eq!(looks(&app.app), 1, "within the pause");
        clock.advance(10).await;
        soon("it looks again", || looks(&app.app) == 2).await;
    };
    tokio::select! {
        biased;
        told = app.app.order_waiters.wait(user(1), OrderId::new(7).expect("an id"), patience()) => {
            panic!("no order has this id: {told:?}")
        }
        () = looking => {}
    }
}

/// All of these users wait at this process. Returns the answer to each.
async fn wait_for(process: &App, promised: &BTreeMap<i64, i64>) -> BTreeMap<i64, Option<Order>> {
    let waiting = promised.iter().map(async |(id, order)| {
        let order = OrderId::new(*order).expect("an order id");
        (*id, process.order_waiters.wait(user(*id), order, patience()).await)
    });
    join_all(waiting).await.into_iter().collect()
}

/// Looks that this process has counted.
fn looks(process: &App) -> i64 {
    let page = process.metrics.page();
    let line = page.lines().find_map(|line| line.strip_prefix("flash_sale_order_looks_total "));
    line.and_then(|number| number.parse().ok()).expect("it is on the page")
}

/// Transactions in this app's database, as far as they have been counted. Asked on a new connection, which has seen
/// no older snapshot.
async fn transactions(app: &TestApp) -> i64 {
    let mut connection =
        PgConnection::connect(&app.database_url()).await.expect("Postgres answers");
    let query = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    let count = sqlx::query_scalar(query).fetch_one(&mut connection).await.expect("it counts");
    connection.close().await.expect("Postgres answers");
    count
}
