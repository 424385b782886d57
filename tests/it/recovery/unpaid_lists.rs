//! The lists of unpaid orders are built beside those in use, and switched under the epoch of their recovery only.

use std::sync::Arc;

use flash_sale::app::App;
use private_servers::testing::{RedisProxy, RedisServer};
use tokio::task::JoinSet;

use crate::faults::recovery::{keep, sell, start_with};
use crate::support::{Bounded, TestApp, bounded, eventually, lane, proxy_before};

/// A user may hold five unpaid orders; each of users 1 to 3 holds one.
async fn bounded_app() -> (RedisServer, TestApp) {
    let (server, app) = start_with(&["--unpaid-orders-max", "5"]).await;
    let coupon = app.create_flash(20).await;
    sell(&app, coupon, 1..=3).await;
    app.write_orders().await;
    keep(&app).await;
    (server, app)
}

/// The users with a list.
async fn listed(app: &TestApp) -> Vec<String> {
    let mut users: Vec<String> = app.redis(&["HKEYS", &app.keys().unpaid(lane())]).await;
    users.sort();
    users
}

/// Keys of lists that were built and are not in use.
async fn built(app: &TestApp) -> Vec<String> {
    app.redis(&["KEYS", &format!("{}:*", app.keys().unpaid(lane()))]).await
}

/// Redis is emptied, and another process recovers it, up to the moment at which it has read the orders and is about to
/// write the first list.
async fn about_to_write(app: &TestApp) -> (RedisProxy, Arc<App>, JoinSet<bool>) {
    let proxy = proxy_before(app, ":unpaid:").await;
    let other = app.another_instance_behind(&proxy).await;
    let _: String = app.redis(&["FLUSHALL"]).await;
    app.app.leaders.first().give_up().await;
    proxy.hold();
    let recovering = other.clone();
    let mut job = JoinSet::new();
    job.spawn(async move { recovering.leaders.first().run_once().bounded().await.is_ok() });
    eventually("the lists are about to be written", async || proxy.held() == 1).await;
    (proxy, other, job)
}

#[tokio::test]
async fn an_order_that_is_paid_meanwhile_leaves_its_list_after_the_opening() {
    let (_server, app) = bounded_app().await;
    let paid = app.number("SELECT id FROM orders WHERE user_id = 1").await;
    let cancelled = app.number("SELECT id FROM orders WHERE user_id = 2").await;
    let (proxy, _other, mut job) = about_to_write(&app).await;

    assert_eq!(app.pay(1, paid).await.status, 200);
    assert_eq!(app.cancel(2, cancelled).await.status, 200);
    app.app.lanes.read_now().await.expect("Postgres answers");
    // Unit and place wait until the lane is open.
    let _ = app.app.stock_returns.run_once().bounded().await;
    let open = "SELECT count(*) FROM stock_returns WHERE done_at IS NULL";
    assert_eq!(app.number(open).await, 2);
    proxy.release();
    let ended = bounded("the end of the recovery", job.join_next()).await;
    assert!(ended.expect("it was begun").expect("it ends"));
    assert_eq!(listed(&app).await, ["1", "2", "3"], "as they were when the lists were built");
    app.app.lanes.read_now().await.expect("Postgres answers");
    app.release().await;
    assert_eq!(listed(&app).await, ["3"]);
    assert!(built(&app).await.is_empty());
}

/// Its process died between the two steps.
#[tokio::test]
async fn lists_that_a_recovery_has_left_behind_are_removed_by_the_next_one() {
    let (_server, app) = bounded_app().await;
    let died = app.keys().unpaid_built(lane(), 2);
    let _: i64 = app.redis(&["HSET", &died, "1", "100"]).await;
    app.execute(
        "UPDATE lanes SET epoch = 2, state = 'recovering', closed_at = now(), reason = 'by hand';
         INSERT INTO recoveries (lane, epoch, reason, closed_at) VALUES (0, 2, 'by hand', now())",
    )
    .await;
    keep(&app).await;
    assert_eq!(
        app.number("SELECT sales_kept FROM recoveries WHERE opened_at IS NOT NULL").await,
        1
    );
    assert!(built(&app).await.is_empty());
    assert_eq!(listed(&app).await, ["1", "2", "3"]);
}
