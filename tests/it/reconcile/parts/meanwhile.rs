//! Orders that move while they are compared: what is read last decides, so that none of them is a finding.

use std::sync::Arc;

use flash_sale::app::App;
use flash_sale::sale::reconcile::{self, Report};
use flash_sale::sale::{Failure, Stores};
use private_servers::testing::RedisProxy;
use tokio::task::JoinSet;

use super::CENSUS;
use crate::support::{Bounded, TestApp, bounded, eventually, lane, proxy_before};

type Comparison = JoinSet<Result<Report, Failure>>;

/// A comparison by another process, up to the moment at which its command is held back.
async fn compare_up_to_command(other: Arc<App>, proxy: &RedisProxy) -> Comparison {
    let before = proxy.held();
    proxy.hold();
    let mut comparison = JoinSet::new();
    comparison.spawn(async move {
        let Stores { pool, redis, keys } = &other.stores;
        reconcile::check(pool, redis, keys).bounded().await
    });
    eventually("the command is held back", async || proxy.held() > before).await;
    comparison
}

/// The end of a comparison, once nothing is held back.
async fn end_of(mut comparison: Comparison, proxy: &RedisProxy) -> Report {
    proxy.release();
    let ended = bounded("the end of the comparison", comparison.join_next()).await;
    ended.expect("it was begun").expect("it ends").expect("both stores answer")
}

/// Codes of its findings.
async fn codes_of(comparison: Comparison, proxy: &RedisProxy) -> Vec<&'static str> {
    let report = end_of(comparison, proxy).await;
    report.disagreements.iter().map(reconcile::Disagreement::code).collect()
}

/// Two users with an unpaid order of a sale that Redis need not hold any more; and the ids of these orders.
async fn with_lists() -> (TestApp, [i64; 2]) {
    let app = TestApp::configured(&["--unpaid-orders-max", "5"]).await;
    app.expect_disagreements();
    let coupon = app.create_flash(5).await;
    let orders = [app.order(1, coupon).await, app.order(2, coupon).await];
    app.execute("UPDATE flash_sales SET loaded_at = NULL, load_id = NULL").await;
    (app, orders)
}

/// The command by which the list of a user is read.
fn read_of_a_list(app: &TestApp) -> &'static str {
    let key = app.keys().unpaid(lane());
    format!("HGET\r\n${}\r\n{key}", key.len()).leak()
}

#[tokio::test]
async fn not_listed_is_no_order_that_is_paid_before_its_list_is_read() {
    let (app, [_, second]) = with_lists().await;
    let proxy = proxy_before(&app, read_of_a_list(&app)).await;
    let other = app.another_instance_behind(&proxy).await;
    for (moves, expected) in [(true, vec![]), (false, vec!["place_missing"])] {
        app.execute("UPDATE orders SET status = 'unpaid', paid_at = NULL, pay_method = NULL, updated_at = now()").await;
        let comparison = compare_up_to_command(other.clone(), &proxy).await;
        let _: i64 = app.redis(&["HDEL", &app.keys().unpaid(lane()), "2"]).await;
        if moves {
            assert_eq!(app.pay(2, second).await.status, 200);
        }
        assert_eq!(codes_of(comparison, &proxy).await, expected, "{moves}");
    }
}

/// The bound may not have held before the oldest order on a list was claimed.
#[tokio::test]
async fn not_listed_is_not_the_oldest_order_on_a_list_though_it_leaves_the_list_meanwhile() {
    let (app, _) = with_lists().await;
    let proxy = proxy_before(&app, read_of_a_list(&app)).await;
    let other = app.another_instance_behind(&proxy).await;
    let comparison = compare_up_to_command(other, &proxy).await;
    let _: i64 = app.redis(&["HDEL", &app.keys().unpaid(lane()), "1"]).await;
    assert_eq!(codes_of(comparison, &proxy).await, [""; 0]);
}

#[tokio::test]
async fn not_freed_is_no_order_that_leaves_its_list_before_that_is_read_again() {
    let (app, [_, second]) = with_lists().await;
    assert_eq!(app.pay(2, second).await.status, 200);
    app.execute("UPDATE stock_returns SET done_at = now()").await;
    let proxy = proxy_before(&app, read_of_a_list(&app)).await;
    let other = app.another_instance_behind(&proxy).await;
    for (leaves, expected) in [(false, vec!["place_not_freed"]), (true, vec![])] {
        let comparison = compare_up_to_command(other.clone(), &proxy).await;
        if leaves {
            let _: i64 = app.redis(&["HDEL", &app.keys().unpaid(lane()), "2"]).await;
        }
        assert_eq!(codes_of(comparison, &proxy).await, expected, "{leaves}");
    }
}

/// The worker acknowledges the entry, and it is trimmed, between the two looks.
#[tokio::test]
async fn pending_deleted_is_no_entry_that_is_acknowledged_meanwhile() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(5).await;
    for worker in &mut app.workers() {
        worker.ensure_group().bounded().await.expect("Redis answers");
    }
    for user in 1..=2 {
        assert_eq!(app.claim(user, coupon).await.status, 202);
    }
    app.execute("UPDATE flash_sales SET loaded_at = NULL, load_id = NULL").await;
    let log = app.log(lane());
    for (acknowledged, expected) in [(true, false), (false, true)] {
        let group = ["XREADGROUP", "GROUP", "order-writers", "w", "COUNT", "1"];
        let words = [&group[..], &["STREAMS", &log, ">"]].concat();
        let _: redis::Value = app.redis(&words).await;
        let pending: Vec<(String, String, u64, u64)> =
            app.redis(&["XPENDING", &log, "order-writers", "-", "+", "9"]).await;
        let [(entry, ..)] = &pending[..] else { panic!("{pending:?}") };
        // The first command with an entry as both ends looks for it in the log.
        let look = format!("{entry}\r\n${}\r\n{entry}", entry.len()).leak();
        let proxy = proxy_before(&app, look).await;
        let other = app.another_instance_behind(&proxy).await;
        let comparison = compare_up_to_command(other, &proxy).await;
        if acknowledged {
            let _: i64 = app.redis(&["XACK", &log, "order-writers", entry]).await;
        }
        assert_eq!(app.redis::<i64>(&["XDEL", &log, entry]).await, 1);
        let codes = codes_of(comparison, &proxy).await;
        assert_eq!(codes.contains(&"pending_deleted"), expected, "{codes:?}");
    }
}

/// The unit of a cancelled order comes back after the outbox has been asked for it.
#[tokio::test]
async fn closed_is_no_buyer_whose_unit_has_come_back_meanwhile() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(5).await;
    app.order(1, coupon).await;
    let order = app.order(2, coupon).await;
    assert_eq!(app.cancel(2, order).await.status, 200);
    app.execute("UPDATE stock_returns SET done_at = now()").await;
    let shard: &str = app.shard_of(coupon, 2).await.leak();
    let read = format!("HGET\r\n${}\r\n{shard}", shard.len()).leak();
    let proxy = proxy_before(&app, read).await;
    let other = app.another_instance_behind(&proxy).await;
    for (comes_back, expected) in [(false, true), (true, false)] {
        let comparison = compare_up_to_command(other.clone(), &proxy).await;
        if comes_back {
            app.forget_buyer(coupon, 2).await;
        }
        let codes = codes_of(comparison, &proxy).await;
        assert_eq!(codes.contains(&"not_given_back"), expected, "{codes:?}");
    }
}

/// No order is in flight at the beginning, and none at the end.
#[tokio::test]
async fn check_as_is_at_rest_only_if_no_unit_is_claimed_meanwhile() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let proxy = proxy_before(&app, &CENSUS).await;
    let other = app.another_instance_behind(&proxy).await;
    for is_claimed in [false, true] {
        let comparison = compare_up_to_command(other.clone(), &proxy).await;
        if is_claimed {
            app.order(1, coupon).await;
        }
        let report = end_of(comparison, &proxy).await;
        assert_eq!((report.at_rest, report.in_flight, report.findings()), (!is_claimed, 0, 0));
    }
}
