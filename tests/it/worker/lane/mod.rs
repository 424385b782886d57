//! The worker of one lane, pass by pass.

// Entries of other workers.
mod recovering;

// Batches: their size, what is counted, and what is told.
mod batches;

// A group that has vanished.
mod groups;

// Lanes at rest.
mod resting;

use std::time::Duration;

use flash_sale::app::App;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::log::OrderLog;
use flash_sale::worker::{LaneWorker, WorkerSettings, consumer_name};
use std::sync::Arc;

use crate::support::{TestApp, calls, lane};

/// A worker with these settings. The group is there before it, so that it doesn't compare the stores beside the test.
async fn worker_with(app: &TestApp, change: impl Fn(&mut WorkerSettings)) -> LaneWorker {
    let mut settings = WorkerSettings::from(&app.config);
    change(&mut settings);
    let mut worker = worker_of(app.app.clone(), settings);
    worker.log().ensure_group().await.expect("Redis answers");
    worker.ensure_group().await.expect("Redis answers");
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

/// Moves the clock of this process on, while nothing is under way.
async fn later(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}
