//! Calls of the claim script: how many there are, what they teach the process, and what it remembers of them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flash_sale::base::clock::Clock;
use flash_sale::sale::Failure;
use flash_sale::sale::claim::outcome::ClaimOutcome;
use futures_util::future::join_all;
use futures_util::poll;
use sqlx::Connection;
use tokio::time::Instant;

use crate::support::{
    OwnServers, TestApp, bounded, command_calls, eventually, lane, older_process, proxy_before,
    user,
};

/// An entry of the log has the claims of one call.
#[tokio::test]
async fn claims_queue_and_push_begins_no_more_than_two_calls_for_a_coupon() {
    const CLAIMS: i64 = 20;
    let app = TestApp::start().await;
    let coupon = app.create_flash(100).await;
    let proxy = proxy_before(&app, "EVALSHA").await;
    let process = app.another_instance_behind(&proxy).await;
    let first = process.claims.claim(coupon, user(1)).await;
    assert!(matches!(first, Ok(ClaimOutcome::Accepted(_))), "{first:?}");
    let entries = async || app.redis::<i64>(&["XLEN", &app.log(lane())]).await;
    let before = entries().await;

    proxy.hold();
    let mut claims: Vec<_> =
        (0..CLAIMS).map(|n| Box::pin(process.claims.claim(coupon, user(2 + n)))).collect();
    for claim in &mut claims {
        assert!(poll!(claim).is_pending());
        // A call that begins takes the claims that wait.
        tokio::task::yield_now().await;
    }
    eventually("calls are under way", async || proxy.held() > 0).await;
    proxy.release();
    for outcome in bounded("the answers", join_all(claims)).await {
        assert!(matches!(outcome, Ok(ClaimOutcome::Accepted(_))), "{outcome:?}");
    }
    let calls = entries().await - before;
    assert!(calls <= 3, "two calls, and one for those that waited: {calls}");
    app.write_orders().await;
}

/// Connections that Redis has taken so far.
async fn connections(app: &TestApp) -> i64 {
    let stats: String = app.redis(&["INFO", "stats"]).await;
    let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    line.and_then(|line| line.trim().parse().ok()).expect("it is told")
}

/// A claim that waits for no replica shares the connection of the process. A setup that is never as it is told is asked
/// for three times, not for ever.
#[tokio::test]
async fn call_asks_over_the_shared_connection_and_learns_two_lessons() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    let coupon = app.create_flash(5).await;
    let coupons = [coupon, app.create_flash(5).await];
    for coupon in coupons {
        assert_eq!(app.claim(1, coupon).await.status, 202);
    }
    let before = connections(&app).await;
    let claims = coupons.map(|coupon| app.app.claims.claim(coupon, user(2)));
    for told in join_all(claims).await {
        assert!(matches!(told, Ok(ClaimOutcome::Accepted(_))), "{told:?}");
    }
    assert_eq!(connections(&app).await, before);
    app.write_orders().await;

    let sale = app.keys().coupon(coupon);
    let _: i64 = app.redis(&["HSET", &sale, "shards", "01"]).await;
    let _: String = app.redis(&["CONFIG", "RESETSTAT"]).await;
    let told = bounded("an answer", app.app.claims.claim(coupon, user(4))).await;
    assert!(matches!(told, Err(Failure::Stale(it)) if it == coupon), "{told:?}");
    // Only the claim script asks for the type of a key.
    assert_eq!(command_calls(&app, "type").await, 3);
    let _: i64 = app.redis(&["HSET", &sale, "shards", "1"]).await;
    assert_eq!(app.claim(4, coupon).await.status, 202);
}

#[tokio::test]
async fn call_learns_the_shards_and_the_log_of_a_sale_in_one_claim() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(40).await;
    let older = older_process(&app).await;
    let sleeping = app.another_instance().await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    let told = sleeping.claims.claim(coupon, user(2)).await;
    assert!(matches!(told, Ok(ClaimOutcome::Accepted(_))), "{told:?}");
    older.close().await.expect("it goes");
}

/// Repeats say nothing of the stock.
#[tokio::test]
async fn remember_a_sold_out_sale_of_a_call_that_ends_with_a_repeat() {
    let app = TestApp::configured(&["--sold-out-memory-ms", "60000"]).await;
    let coupon = app.create_flash(1).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    let server = app.app.stores.redis.link().await.expect("Redis answers").server().clone();
    app.app.memories.begin_listening(server, Arc::new(AtomicBool::new(true)));
    let claims = [2, 1].map(|id| app.app.claims.claim(coupon, user(id)));
    let told = join_all(claims).await;
    let told: Vec<_> = told.iter().map(|it| it.as_ref().map(|it| it.status().code)).collect();
    assert!(matches!(told[..], [Ok("sold_out"), Ok("already_claimed")]), "{told:?}");
    eventually("it is remembered", async || {
        app.app.memories.heard(Instant::now());
        // Of ten thousand strangers, one is taken for a buyer.
        (3..=5).any(|id| app.app.memories.sold_out.refuses(coupon, user(id)))
    })
    .await;
}

/// Claims that queue behind calls of a slow Redis are refused in time, and those that are under way are waited for.
#[tokio::test]
async fn call_refuses_late_claims_of_the_queue_and_gives_up_none_that_is_under_way() {
    let app = TestApp::configured(&["--claim-wait-ms", "100"]).await;
    let coupon = app.create_flash(100).await;
    let proxy = proxy_before(&app, "EVALSHA").await;
    let process = app.another_instance_behind(&proxy).await;
    // With the first ids, and the script, in place.
    let told = process.claims.claim(coupon, user(1)).await;
    assert!(matches!(told, Ok(ClaimOutcome::Accepted(_))), "{told:?}");
    proxy.hold();
    let mut under_way: Vec<_> =
        (2..=3).map(|id| Box::pin(process.claims.claim(coupon, user(id)))).collect();
    for claim in &mut under_way {
        assert!(poll!(claim).is_pending());
        tokio::task::yield_now().await;
    }
    let told = bounded("a refusal", process.claims.claim(coupon, user(4))).await;
    assert!(matches!(told, Ok(ClaimOutcome::Overloaded)), "{told:?}");
    proxy.release();
    for told in bounded("the answers", join_all(under_way)).await {
        assert!(matches!(told, Ok(ClaimOutcome::Accepted(_))), "{told:?}");
    }
    app.write_orders().await;
    assert_eq!(app.number("SELECT count(*) FROM orders WHERE user_id = 4").await, 0);
}
