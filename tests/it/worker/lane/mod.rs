//! The worker of one lane, pass by pass.

// Entries of other workers.
mod recovering;

// Batches: their size, what is counted, and what is told.
mod batches;

// A group that has vanished.
mod groups;

// Lanes at rest.
mod resting;

// The turns of a writer.
mod turns;

// Other consumers of the process, which help the writer.
mod reliefs;

// The end of a worker.
mod draining;

// Turns that fail.
mod trouble;

// Claims of batches that failed, tried again.
mod tried;

// Marks of a written batch.
mod written;

// Commands that a turn costs.
mod costs;

use std::time::Duration;

use flash_sale::app::App;
use flash_sale::base::clock::Clock;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::log::OrderLog;
use flash_sale::worker::lane::Due;
use flash_sale::worker::{LaneWorker, WorkerSettings, consumer_name};
use private_servers::testing::RedisServer;
use std::sync::Arc;
use tokio::time::Instant;

use crate::support::servers::Addresses;
use crate::support::{Bounded, TestApp, calls, lane, shared};

const HOUR: Duration = Duration::from_secs(3_600);

/// A worker with these settings. The group is there before it, so that it doesn't compare the stores beside the test.
async fn worker_with(app: &TestApp, change: impl Fn(&mut WorkerSettings)) -> LaneWorker {
    let mut settings = WorkerSettings::from(&app.config);
    change(&mut settings);
    let mut worker = worker_of(app.app.clone(), settings);
    worker.log().ensure_group().bounded().await.expect("Redis answers");
    worker.ensure_group().bounded().await.expect("Redis answers");
    worker
}

fn worker_of(app: Arc<App>, settings: WorkerSettings) -> LaneWorker {
    LaneWorker::new(app, calls(lane()), consumer_name(), settings)
}

/// A consumer that only reads.
fn reader(app: &TestApp) -> OrderLog {
    let stores = &app.app.stores;
    OrderLog::new(stores.redis.clone(), &stores.keys, calls(lane()), consumer_name())
}

/// `user` claims for each of these users, each in an entry of its own.
async fn claims(app: &TestApp, coupon: CouponId, users: std::ops::RangeInclusive<i64>) {
    for user in users {
        assert_eq!(app.claim(user, coupon).await.status, 202);
    }
}

/// Appends claims of users whose orders have the same numbers.
async fn append(app: &TestApp, coupon: CouponId, users: std::ops::RangeInclusive<i64>) {
    let coupon = coupon.to_string();
    for user in users {
        let user = user.to_string();
        app.append(lane(), &["coupon", &coupon, "user", &user, "order", &user]).await;
    }
}

/// An app on a Redis of the test's own, which counts commands.
async fn app_on(server: &RedisServer) -> TestApp {
    let at = Addresses { redis_url: server.url(), ..shared().clone() };
    TestApp::on(&at, &[], Clock::System).await
}

/// The timed passes are due in so long.
fn due_in(recover: Duration, tidy_up: Duration) -> Due {
    let now = Instant::now();
    Due { recover_at: now + recover, tidy_up_at: now + tidy_up }
}

/// Number of rows.
async fn rows(app: &TestApp) -> i64 {
    app.number("SELECT count(*) FROM orders").await
}

/// Number of consumers that the group knows.
async fn consumers(app: &TestApp) -> usize {
    let key = app.log(lane());
    let consumers: Vec<redis::Value> =
        app.redis(&["XINFO", "CONSUMERS", &key, "order-writers"]).await;
    consumers.len()
}
