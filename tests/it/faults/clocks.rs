//! Redis's clock is set back: what was held under the old time isn't held until the new one has caught up.

use std::time::Duration;

use flash_sale::base::clock::Clock;
use private_servers::testing::RedisServer;

use crate::support::servers::Addresses;
use crate::support::{TestApp, eventually, lane, shared, user};

/// Time by which the clock is set back: longer than any test runs.
const STEP: Duration = Duration::from_secs(3_600);

/// An app on a Redis whose clock can be set.
async fn start() -> (RedisServer, TestApp) {
    let server = RedisServer::with_a_clock_to_set(&[]);
    let at = Addresses { redis_url: server.url(), ..shared().clone() };
    (server, TestApp::on(&at, &[], Clock::System).await)
}

async fn redis_s_clock(app: &TestApp) -> i64 {
    app.redis::<(i64, i64)>(&["TIME"]).await.0
}

async fn set_back(server: &RedisServer, app: &TestApp) {
    let before = redis_s_clock(app).await;
    let seconds = i64::try_from(STEP.as_secs()).expect("it fits");
    server.set_clock(-seconds);
    eventually("the clock is set back", async || redis_s_clock(app).await < before - seconds / 2)
        .await;
}

#[tokio::test]
async fn entries_of_a_worker_that_died_are_written_though_the_clock_was_set_back() {
    let (server, app) = start().await;
    let coupon = app.create_flash(10).await;
    for id in 1..=3 {
        assert_eq!(app.claim(id, coupon).await.status, 202);
    }
    // A worker reads them, locks their buyers, and dies. Then the clock is set back.
    let dead = app.worker(lane());
    dead.ensure_group().await.unwrap();
    assert_eq!(dead.log().read_new(10, Duration::ZERO).await.unwrap().entries.len(), 3);
    let keys = [1, 2].map(|id| app.keys().order_lock(lane(), user(id)));
    for key in &keys {
        let _: i64 = app.redis(&["HSET", key, "a holder that is dead", "1"]).await;
        let _: i64 = app.redis(&["PEXPIRE", key, "2000"]).await;
    }
    set_back(&server, &app).await;
    let left: i64 = app.redis(&["PTTL", &keys[0]]).await;
    assert!(left > 1_000_000, "{left}: the lease has grown by the step");

    let mut worker = app.worker(lane());
    let mut written = worker.write_job().await.unwrap().inserted;
    assert_eq!(written, 1, "the one without a lock is written at once");
    eventually("all of them are written", async || {
        written += worker.write_job().await.unwrap().inserted;
        written == 3
    })
    .await;
}

#[tokio::test]
async fn a_user_who_is_locked_since_before_the_step_can_claim_a_regular_coupon() {
    let (server, app) = start().await;
    let coupon = app.create_regular().await;
    let key = app.keys().order_lock(coupon.lane(), user(1));
    let _: i64 = app.redis(&["HSET", &key, "a holder that is dead", "1"]).await;
    let _: i64 = app.redis(&["PEXPIRE", &key, "2000"]).await;
    set_back(&server, &app).await;
    eventually("the claim", async || app.claim(1, coupon).await.status == 201).await;
}
