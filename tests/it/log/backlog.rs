//! The bound on accepted claims that wait to be written, and a full Redis: no further claim is accepted, accepted
//! ones are written, and then claims go on.

use flash_sale::base::clock::Clock;
use flash_sale::base::limits;

use crate::support::{Bounded, OwnServers, TestApp, user};

#[tokio::test]
async fn beyond_the_bound_new_claims_are_overloaded_and_the_rest_goes_on() {
    for lanes in ["1", "4"] {
        let app = TestApp::configured(&["--backlog-orders-max", "3", "--lanes", lanes]).await;
        let coupon = app.create_flash(10).await;
        let sold_out = app.create_flash(1).await;
        let regular = app.create_regular().await;
        let first = app.claim(1, coupon).await.order_id();
        assert_eq!(app.claim(2, coupon).await.status, 202);
        assert_eq!(app.claim(1, sold_out).await.status, 202);
        app.app.backlog_pass().bounded().await;

        let refused = app.claim(3, coupon).await;
        assert_eq!(refused.refusal(), (503, "overloaded"));
        let seconds = limits::OVERLOADED_RETRY_AFTER.as_secs().to_string();
        assert_eq!(refused.header("retry-after"), seconds);
        assert_eq!(app.my_claim(3, coupon).await.refusal(), (404, "not_claimed"));
        let repeat = app.claim(1, coupon).await;
        assert_eq!((repeat.refusal(), repeat.order_id()), ((409, "already_claimed"), first));
        assert_eq!(app.claim(3, sold_out).await.refusal(), (410, "sold_out"));
        assert_eq!(app.claim(3, regular).await.status, 201);
        let page = app.get("/metrics", "").await;
        let page = page.body.as_str().expect("a page");
        assert!(page.contains("flash_sale_claims_total{outcome=\"overloaded\"} 1"), "{page}");
        assert!(page.contains("flash_sale_backlog_entries 3"), "{page}");

        app.write_orders().await;
        app.app.backlog_pass().bounded().await;
        assert_eq!(app.claim(3, coupon).await.status, 202);
    }
}

#[tokio::test]
async fn a_full_redis_refuses_claims_whole_and_can_be_drained() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    let coupon = app.create_flash(100).await;
    for id in 1..=50 {
        assert_eq!(app.claim(id, coupon).await.status, 202);
    }
    let maxmemory = async |bytes: &str| {
        let _: String = app.redis(&["CONFIG", "SET", "maxmemory", bytes]).await;
    };
    maxmemory("1mb").await;
    for id in 51..=70 {
        assert_eq!(app.claim(id, coupon).await.refusal(), (503, "unavailable"));
    }
    // A process that still has a block of order ids gets as far as the script, which meets the limit.
    let another = app.another_instance().await;
    maxmemory("0").await;
    let claimed = another.claims.claim(coupon, user(51)).await.expect("there is room");
    assert_eq!(claimed.status().http, 202);
    maxmemory("1mb").await;
    assert!(another.claims.claim(coupon, user(52)).await.is_err());
    let repeat = another.claims.claim(coupon, user(51)).await.expect("a repeat writes nothing");
    assert_eq!(repeat.status().code, "already_claimed");

    // No claim is half-done, and a worker that has just been started writes the accepted ones.
    let report = app.reconcile().await;
    assert!(report.agrees(), "{:?}", report.disagreements);
    assert_eq!((report.sales[0].stock, report.sales[0].buyers, report.in_flight), (49, 51, 51));
    let report = app.write_orders().await;
    assert_eq!((report.inserted, report.contended), (51, 0));
    assert_eq!(app.reconcile().await.in_flight, 0);
    for mut worker in app.workers() {
        worker.tidy_up_pass().bounded().await.expect("a full Redis can be tidied up");
    }

    maxmemory("0").await;
    assert_eq!(app.claim(52, coupon).await.status, 202);
}
