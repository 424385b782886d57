//! The buyers' locks of the worker on a Redis that takes no writes.

use flash_sale::base::clock::Clock;

use crate::support::{Bounded, OwnServers, TestApp, eventually};

#[tokio::test]
async fn a_full_redis_can_still_be_drained() {
    // Redis of its own: maxmemory is a setting of the whole server.
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    let coupon = app.create_flash(20).await;
    for user in 1..=5 {
        assert_eq!(app.claim(user, coupon).await.status, 202);
    }
    app.write_orders().await;
    for user in 11..=15 {
        assert_eq!(app.claim(user, coupon).await.status, 202);
    }
    let _: String = app.redis(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert_eq!(app.claim(6, coupon).await.refusal(), (503, "unavailable"));
    let mut worker = app.workers().remove(0);
    worker.ensure_group().bounded().await.unwrap();
    let report = crate::support::write_all(&mut worker).await;
    assert_eq!(report.inserted, 5);
    let _: String = app.redis(&["CONFIG", "SET", "maxmemory", "0"]).await;
    eventually("claims are taken again", async || app.claim(6, coupon).await.status == 202).await;
}
