//! A process that can't hear of returned units: it believes nothing, so every door tells a buyer the order.

use std::sync::Arc;

use flash_sale::app::{App, start_housekeeping};
use flash_sale::claim::outcome::ClaimOutcome;
use flash_sale::store::ids::CouponId;
use private_servers::testing::RedisProxy;

use crate::support::{TestApp, eventually, proxy_before, user};

/// Longer than any test: a remembered sale stays remembered.
const LONG: [&str; 2] = ["--sold-out-memory-ms", "60000"];
/// Sales, each of one unit, that are sold out, get their unit back, and sell it again.
const SALES: i64 = 25;

#[tokio::test]
async fn a_winner_s_retry_is_told_the_order_by_a_process_whose_subscription_is_cut() {
    let app = TestApp::configured(&LONG).await;
    let proxy = proxy_before(&app, "SUBSCRIBE").await;
    let other = listening_behind(&app, &proxy).await;
    let sold_out = sold_out_sales(&app, &other).await;

    proxy.cut().await;
    assert_eq!(winners_told_their_order(&app, &other, &sold_out).await, SALES);

    // The process remembers it again.
    proxy.heal();
    let (coupon, _) = sold_out[0];
    eventually("it listens again", async || believes(&other, coupon).await).await;
}

#[tokio::test]
async fn a_winner_s_retry_is_told_the_order_by_a_process_whose_subscription_is_silent() {
    let app = TestApp::configured(&LONG).await;
    let proxy = proxy_before(&app, "SUBSCRIBE").await;
    let other = listening_behind(&app, &proxy).await;
    let sold_out = sold_out_sales(&app, &other).await;

    // The connection stays open.
    proxy.silence();
    let any = |(coupon, _): &(CouponId, i64)| {
        // Half-way through its memory it sends one claim to Redis, and refuses the next.
        let refuses = || other.memories.first().sold_out.refuses(*coupon, user(999_998));
        refuses() || refuses()
    };
    eventually("it is found out", async || !sold_out.iter().any(any)).await;
    assert_eq!(winners_told_their_order(&app, &other, &sold_out).await, SALES);
}

/// A second process, which reaches Redis through the proxy only.
async fn listening_behind(app: &TestApp, proxy: &RedisProxy) -> Arc<App> {
    let other = app.another_instance_behind(proxy).await;
    start_housekeeping(&other);
    other
}

/// Sales that the other process believes to be sold out, each with the order that has its unit. Buyers are users 1, 2
/// ...
async fn sold_out_sales(app: &TestApp, other: &App) -> Vec<(CouponId, i64)> {
    let mut sales = Vec::new();
    for buyer in 1..=SALES {
        let coupon = app.create_flash(1).await;
        let order = app.order(buyer, coupon).await;
        eventually("it is remembered", async || believes(other, coupon).await).await;
        sales.push((coupon, order));
    }
    sales
}

/// Whether a process refuses a newcomer without asking Redis; it is asked once, so that it can remember.
async fn believes(process: &App, coupon: CouponId) -> bool {
    let told = process.claims.claim(coupon, user(999_999)).await.expect("Redis answers");
    assert_eq!(told.status().code, "sold_out");
    process.memories.first().sold_out.refuses(coupon, user(999_998))
}

/// Each unit comes back and is sold to a newcomer, who asks the other process once more. Returns the number of
/// newcomers who are told their order.
async fn winners_told_their_order(app: &TestApp, other: &App, sales: &[(CouponId, i64)]) -> i64 {
    let mut told_order = 0;
    for ((coupon, order), buyer) in sales.iter().zip(1..) {
        assert_eq!(app.cancel(buyer, *order).await.status, 200);
        assert_eq!(app.release().await, 1);
        let winner = 1_000 + buyer;
        let won = app.claim(winner, *coupon).await;
        assert_eq!(won.status, 202);
        match other.claims.claim(*coupon, user(winner)).await.expect("Redis answers") {
            ClaimOutcome::AlreadyClaimed(order) => {
                assert_eq!(order.get(), won.order_id());
                told_order += 1;
            }
            ClaimOutcome::SoldOut => {}
            other => panic!("{other:?}"),
        }
    }
    told_order
}
