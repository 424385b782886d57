//! Claims of the same moment share a call of the claim script, and each keeps its own outcome.

use std::collections::BTreeSet;

use flash_sale::base::clock::Clock;
use flash_sale::claim::outcome::ClaimOutcome;
use futures_util::future::join_all;
use futures_util::poll;

use crate::support::{OwnServers, TestApp, eventually, script_calls, user};

#[tokio::test]
async fn a_crowd_shares_calls_and_each_has_its_own_answer() {
    const CROWD: i64 = 2_000;
    const STOCK: i64 = 700;
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    let coupon = app.create_flash(STOCK).await;
    // The first claim takes a block of ids, and makes the script known.
    assert_eq!(app.claim(CROWD + 1, coupon).await.status, 202);
    let _: String = app.redis(&["CONFIG", "RESETSTAT"]).await;

    // Each user claims twice, at the same moment.
    let claims = (1..=2 * CROWD).map(|n| app.app.claims.claim(coupon, user(1 + n % CROWD)));
    let mut accepted = BTreeSet::new();
    let mut repeated = 0;
    let mut sold_out = 0;
    for outcome in join_all(claims).await {
        match outcome.expect("nothing is broken") {
            ClaimOutcome::Accepted(order) => assert!(accepted.insert(order), "{order} twice"),
            ClaimOutcome::AlreadyClaimed(_) => repeated += 1,
            ClaimOutcome::SoldOut => sold_out += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(accepted.len() as i64, STOCK - 1);
    assert_eq!(repeated, STOCK - 1);
    assert_eq!(sold_out, 2 * (CROWD - STOCK + 1));
    let calls = script_calls(&app).await;
    println!("{} claims took {calls} calls", 2 * CROWD);
    assert!(calls > 0 && calls * 10 < 2 * CROWD, "{calls} calls for {} claims", 2 * CROWD);
    assert_eq!(app.write_orders().await.inserted as i64, STOCK);
}

#[tokio::test]
async fn a_client_that_goes_away_takes_nobody_along_and_finds_its_order_later() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(100).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    let mut going: Vec<_> =
        (2..=4).map(|id| Box::pin(app.app.claims.claim(coupon, user(id)))).collect();
    let staying = (5..=50).map(|id| app.app.claims.claim(coupon, user(id)));
    // All claims have been sent, and none has been answered.
    for claim in &mut going {
        assert!(poll!(claim).is_pending());
    }
    let staying = join_all(staying);
    drop(going.split_off(1));
    for outcome in staying.await {
        assert!(matches!(outcome, Ok(ClaimOutcome::Accepted(_))), "{outcome:?}");
    }
    assert!(matches!(going.remove(0).await, Ok(ClaimOutcome::Accepted(_))));
    let carried_out = async || app.buyers_count(coupon).await >= 48;
    eventually("what had been sent is carried out", carried_out).await;
    for id in 2..=4 {
        assert!([202, 409].contains(&app.claim(id, coupon).await.status));
    }
    assert_eq!(app.write_orders().await.inserted, 50);
}
