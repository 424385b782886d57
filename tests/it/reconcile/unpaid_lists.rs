//! The lists of unpaid orders compared with the orders: a place that no pass frees is named and freed, and an order under way
//! isn't.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flash_sale::base::clock::Clock;
use flash_sale::sale::claim::outcome::ClaimOutcome;
use flash_sale::sale::ids::{CouponId, OrderId};
use flash_sale::sale::order::model::PayMethod;
use flash_sale::sale::order::moves::Asker;
use flash_sale::sale::{Stores, reconcile};
use futures_util::future::join_all;
use serde_json::Value;

use crate::support::{
    Bounded, OwnServers, TestApp, bounded_by, eventually, lane, patience_of, user,
};

const BOUND: [&str; 4] = ["--unpaid-orders-max", "2", "--sold-out-memory-ms", "0"];

/// An app where a user may hold two, with three coupons.
async fn bounded() -> (TestApp, [CouponId; 3]) {
    let app = TestApp::configured(&BOUND).await;
    let coupons = [app.create_flash(9).await, app.create_flash(9).await, app.create_flash(9).await];
    (app, coupons)
}

/// Writes a user's list by hand.
async fn set_list(app: &TestApp, user: &str, list: &str) {
    let _: i64 = app.redis(&["HSET", &app.keys().unpaid(lane()), user, list]).await;
}

async fn list_of(app: &TestApp, user: i64) -> String {
    let list: Option<String> =
        app.redis(&["HGET", &app.keys().unpaid(lane()), &user.to_string()]).await;
    list.unwrap_or_default()
}

/// The comparison's findings, as `code: words`.
async fn found(app: &TestApp) -> Vec<String> {
    let report = app.reconcile().await;
    let found = report.disagreements.iter();
    found.map(|found| format!("{}: {found}", found.code())).collect()
}

#[track_caller]
fn assert_names(found: &[String], expected: &[&str]) {
    let fits = found.iter().zip(expected).all(|(line, words)| line.contains(words));
    assert!(fits && found.len() == expected.len(), "expected {expected:#?}, got {found:#?}");
}

/// Compares and repairs. Returns every repair, as `code done`.
async fn repair(app: &TestApp) -> Vec<String> {
    let reply = app.compare(true).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let repairs = reply.body["repairs"].as_array().expect("a list").iter();
    let line = |one: &Value| format!("{} {}", one["code"].as_str().expect("a code"), one["done"]);
    repairs.map(line).collect()
}

#[tokio::test]
async fn what_is_on_its_way_is_no_finding() {
    let (app, [a, b, c]) = bounded().await;
    let none: [String; 0] = [];
    app.claim(1, a).await;
    assert_eq!(found(&app).await, none, "in flight");
    app.write_orders().await;
    assert_eq!(found(&app).await, none, "unpaid");
    let paid = app.paid_order(2, a).await;
    let cancelled = app.order(2, b).await;
    app.cancel(2, cancelled).await;
    assert_eq!(list_of(&app, 2).await, format!("{paid} {cancelled}"));
    assert_eq!(found(&app).await, none, "both leave the list");
    app.execute(&format!("UPDATE flash_sales SET sold = total WHERE coupon_id = {c}")).await;
    let in_review = app.claim(3, c).await.order_id();
    assert_eq!(app.write_orders().await.dead_letters, 1);
    app.execute(&format!("UPDATE flash_sales SET sold = 0 WHERE coupon_id = {c}")).await;
    assert_eq!(list_of(&app, 3).await, in_review.to_string());
    assert_eq!(found(&app).await, none, "a dead letter keeps its place");
    app.give_back().await;
    assert_eq!((list_of(&app, 2).await, found(&app).await), (String::new(), none.to_vec()));
}

#[tokio::test]
async fn a_place_that_nothing_frees_is_named_and_freed() {
    let (app, [a, b, c]) = bounded().await;
    let paid = app.paid_order(1, a).await;
    let refunded = app.paid_order(1, b).await;
    app.act(1, refunded, "refund").await;
    app.refund_payments().await;
    app.give_back().await;
    // Redis goes back to before these places were freed.
    set_list(&app, "1", &format!("{paid} {refunded}")).await;
    assert_eq!(app.claim(1, c).await.refusal(), (409, "too_many_unpaid_orders"));
    let mut named = found(&app).await;
    named.sort_by_key(|line| line.contains("is refunded"));
    let of = |order, status| {
        format!("order {order} of user 1 is {status}, and still on the user's list")
    };
    assert_names(&named, &[&of(paid, "paid"), &of(refunded, "refunded")]);

    assert_eq!(repair(&app).await, ["place_not_freed true", "place_not_freed true"]);
    assert_eq!(repair(&app).await, [""; 0], "they are on their way");
    assert_eq!((app.give_back().await, list_of(&app, 1).await), (2, String::new()));
    assert_eq!((app.stock(a).await, app.stock(b).await), (8, 9), "no unit has moved");
    assert_eq!((app.claim(1, c).await.status, repair(&app).await), (202, vec![]));
}

#[tokio::test]
async fn lists_that_can_not_be_read_hide_nothing_else() {
    let (app, [a, _, _]) = bounded().await;
    let key = app.keys().unpaid(lane());
    app.order(1, a).await;
    let _: String = app.redis(&["RENAME", &key, &format!("{key}:hidden")]).await;
    let _: String = app.redis(&["SET", &key, "junk"]).await;
    app.execute("UPDATE flash_sales SET sold = 5 WHERE sold = 1").await;
    let mut named = found(&app).await;
    named.sort();
    assert_names(&named, &["places_unreadable: lane 0: its lists", "sold_miscounted: "]);
    let _: String = app.redis(&["RENAME", &format!("{key}:hidden"), &key]).await;
    app.execute("UPDATE flash_sales SET sold = 1 WHERE sold = 5").await;
}

/// More lists than fit on a page, and users with more orders than most.
#[tokio::test]
async fn one_stale_place_among_thousands() {
    const USERS: i64 = 2_500;
    let app = TestApp::configured(&["--unpaid-orders-max", "1000"]).await;
    let a = app.create_flash(3_000).await;
    let b = app.create_flash(3_000).await;
    for coupon in [a, b] {
        for first in (1..=USERS).step_by(100) {
            let claims = (first..first + 100).map(|n| app.app.claims.claim(coupon, user(n)));
            for claimed in join_all(claims).await {
                assert!(matches!(claimed, Ok(ClaimOutcome::Accepted(_))), "{claimed:?}");
            }
        }
    }
    app.write_orders().await;
    assert_eq!(found(&app).await, [""; 0]);
    let paid = app
        .number(&format!("SELECT id FROM orders WHERE user_id = 1234 AND coupon_id = {a}"))
        .await;
    app.pay(1234, paid).await;
    let before = list_of(&app, 1234).await;
    app.give_back().await;
    assert_eq!(found(&app).await, [""; 0]);
    set_list(&app, "1234", &before).await;
    let words = format!("place_not_freed: coupon {a}: order {paid} of user 1234 is paid");
    assert_names(&found(&app).await, &[&words]);
    assert_eq!(repair(&app).await, ["place_not_freed true"]);
    app.give_back().await;
}

/// Users claim, pay and cancel, workers write, units and places come back, and comparisons see all of it. A store
/// that is slow to answer doesn't matter here: each request is repeated.
#[tokio::test]
async fn no_false_alarm_while_orders_come_and_go() {
    const BUSY: usize = 4;
    let app = TestApp::configured(&["--unpaid-orders-max", "3", "--batch-orders-max", "20"]).await;
    let mut coupons = Vec::new();
    for _ in 0..4 {
        coupons.push(app.create_flash(100_000).await);
    }
    // Comparisons that saw orders under way.
    let busy = AtomicUsize::new(0);
    let goes_on = || busy.load(Ordering::SeqCst) < BUSY;
    let claims = async {
        for first in (1..).step_by(5).take_while(|_| goes_on()) {
            let calls = (first..first + 5)
                .flat_map(|n| coupons.iter().map(move |coupon| (n, *coupon)))
                .map(|(n, coupon)| app.app.claims.claim(coupon, user(n)));
            join_all(calls).await;
        }
    };
    let writes = async {
        let mut worker = app.workers().remove(0);
        while goes_on() {
            let _ = worker.ensure_group().bounded().await;
            let _ = worker.write_pass().bounded().await;
            let _ = worker.tidy_up_pass().bounded().await;
        }
    };
    let moves = async {
        while goes_on() {
            close_some(&app).await;
        }
    };
    let returns = async {
        while goes_on() {
            let _ = app.app.stock_returns.pass().bounded().await;
            tokio::task::yield_now().await;
        }
    };
    let checks = async {
        while goes_on() {
            let Stores { pool, redis, keys } = &app.app.stores;
            if let Ok(report) = reconcile::check(pool, redis, keys).bounded().await {
                assert!(report.agrees(), "{:#?}", report.disagreements);
                busy.fetch_add(usize::from(!report.at_rest), Ordering::SeqCst);
            }
        }
    };
    let all = async { tokio::join!(claims, writes, moves, returns, checks) };
    bounded_by(patience_of(Duration::from_secs(300)), "the end of some comparisons", all).await;
    assert!(app.number("SELECT count(*) FROM orders WHERE status <> 'unpaid'").await > 0);
}

/// Pays or cancels the newest unpaid orders.
async fn close_some(app: &TestApp) {
    let query = "SELECT user_id, id FROM orders WHERE status = 'unpaid' ORDER BY id DESC LIMIT 20";
    let page: sqlx::Result<Vec<(i64, i64)>> =
        sqlx::query_as(query).fetch_all(&app.app.stores.pool).await;
    for (n, order) in page.unwrap_or_default() {
        let order = OrderId::new(order).expect("an order id");
        let _ = match order.get() % 2 {
            0 => app.app.payments.pay(user(n), order, PayMethod::Balance, None).await.map(drop),
            _ => app.app.order_moves.cancel(Asker::Buyer(user(n)), order).await.map(drop),
        };
    }
    tokio::task::yield_now().await;
}

/// Redis is really killed and comes back with an older append-only file.
#[tokio::test]
async fn after_a_real_roll_back_a_user_who_has_paid_may_claim_again() {
    let mut servers = OwnServers::durable();
    let arguments = ["--unpaid-orders-max", "1", "--sold-out-memory-ms", "0"];
    let app = TestApp::on(&servers.at, &arguments, Clock::System).await;
    let a = app.create_flash(2).await;
    let b = app.create_flash(2).await;
    let order = app.order(1, a).await;
    let data = servers.folder().path().join("redis/appendonlydir");
    let older = servers.folder().path().join("older");
    copy(&data, &older);

    app.pay(1, order).await;
    app.give_back().await;
    let last = app.order(2, a).await;
    servers.kill_redis();
    fs::remove_dir_all(&data).expect("Redis has ended");
    copy(&older, &data);
    servers.bring_back();
    eventually("Redis answers", async || {
        app.app.stores.redis.query::<String>(&redis::cmd("PING")).await.is_ok()
    })
    .await;

    app.recover().await;
    assert_eq!(found(&app).await, Vec::<String>::new());
    assert_eq!(app.claim(2, b).await.refusal(), (409, "too_many_unpaid_orders"));
    assert_eq!(app.claim(1, b).await.status, 202);

    // The unit of user 2, who bought after the copy was made, is not sold once more.
    assert_eq!(app.claim(2, a).await.order_id(), last);
    assert_eq!(app.claim(3, a).await.refusal(), (410, "sold_out"));
    app.write_orders().await;
    assert_eq!(found(&app).await, [""; 0]);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("there is none");
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).expect("room on the disk");
    }
}
