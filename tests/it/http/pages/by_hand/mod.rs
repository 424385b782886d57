//! Storms and words of processes, with time in the test's hand: it stands still while the stores answer, and passes at
//! once when the test says so. So each look and each event has its moment, however busy the machine is.

// Words of a process to all boards.
mod board_presence;

// Storms whose crowd is a script of the test.
mod storm;

use std::time::Duration;

use flash_sale::sale::ids::CouponId;

use crate::support::{TestApp, patience};

/// Questions of a test behind which each look that has begun is over: a look asks some twenty, one after the other, and
/// the test takes turns with it.
const TURNS: usize = 60;

/// Settings of a service whose looks at Postgres have one connection, beside the one that the test holds.
const TWO_CONNECTIONS: [&str; 2] = ["--database-connections", "2"];

/// Does this while time stands still: a runtime that always has work doesn't skip to its next timer.
pub async fn still<T>(act: impl Future<Output = T>) -> T {
    let began = std::time::Instant::now();
    let works = async || {
        while began.elapsed() < patience() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        done = act => done,
        () = works() => panic!("it hangs"),
    }
}

/// Waits until Redis has answered all that it was asked.
pub async fn redis_settles(app: &TestApp) {
    still(async {
        for _ in 0..TURNS {
            let _: String = app.redis(&["PING"]).await;
        }
    })
    .await;
}

/// Waits until both stores have answered all that they were asked.
pub async fn settle(app: &TestApp) {
    still(async {
        for _ in 0..TURNS {
            app.number("SELECT 1::bigint").await;
            let _: String = app.redis(&["PING"]).await;
        }
    })
    .await;
}

/// This time passes at once, and the tasks that have waited for its end go on.
pub async fn pass(time: Duration) {
    for time in [time, Duration::ZERO] {
        // A timer may be a millisecond late, also one that begins now and is due at once.
        tokio::time::advance(time + Duration::from_millis(2)).await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
}

/// A service with one lane, or more.
pub async fn service(lanes: &str) -> TestApp {
    TestApp::configured(&[&TWO_CONNECTIONS[..], &["--lanes", lanes]].concat()).await
}

/// Redis need not hold the sale, or has to again.
pub async fn archive(app: &TestApp, coupon: CouponId, is_archived: bool) {
    let at = if is_archived { "now()" } else { "NULL" };
    let archive = format!("UPDATE flash_sales SET archived_at = {at} WHERE coupon_id = {coupon}");
    still(app.execute(&archive)).await;
}
