//! A long outage of Postgres: claims are accepted up to the bound on the backlog, and the backlog is written afterwards as
//! fast as any other. `make faults` runs this.

use std::time::Duration;

use flash_sale::base::clock::Clock;
use flash_sale::store::ids::CouponId;
use futures_util::future::join_all;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

use crate::support::process::{Process, rows, try_claim};
use crate::support::{OwnServers, TestApp, eventually};

/// Claims that may wait.
const BACKLOG: usize = 50_000;
/// Claims at a time.
const WAVE: i64 = 100;
/// Time for which Postgres is away.
const AWAY: Duration = Duration::from_mins(10);
/// Orders that are written in a second by an optimised build.
const WRITTEN_PER_SECOND: f64 = 5_000.0;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make faults"]
async fn long_the_backlog_of_ten_minutes_without_postgres_is_written_as_fast_as_any() {
    let mut servers = block_in_place(OwnServers::durable);
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    let coupon = app.create_flash(10_000_000).await;
    let bound = BACKLOG.to_string();
    let api = Process::serve(&app, &["--roles", "api", "--backlog-orders-max", &bound]);
    let url = api.url().await;
    let mut next = 1;
    let before = fill(&app, &url, coupon, &mut next).await;
    let worker = Process::serve(&app, &["--roles", "worker"]);
    let usual = drain(&app, before).await;

    servers.kill_postgres();
    let began_at = Instant::now();
    sleep(Duration::from_secs(2)).await;
    let during = fill(&app, &url, coupon, &mut next).await;
    while began_at.elapsed() < AWAY {
        let (accepted, refused) = wave(&app, &url, coupon, &mut next).await;
        assert!(accepted == 0 && refused > 0, "{accepted} accepted, {refused} refused");
        sleep(Duration::from_secs(1)).await;
    }
    block_in_place(|| servers.bring_back());
    for _ in 0..app.config.stores.database_connections {
        eventually("a connection works", async || rows_if_there(&app).await.is_some()).await;
    }
    let afterwards = drain(&app, before + during).await;
    println!(
        "backlogs of {before} and {during} orders: {usual:.0} orders/s without an outage, {afterwards:.0} orders/s after {AWAY:?} without Postgres"
    );
    for accepted in [before, during] {
        assert!((BACKLOG..BACKLOG * 2).contains(&accepted), "{accepted}");
    }
    assert_eq!(app.number("SELECT count(*) FROM dead_letters").await, 0);
    assert!(afterwards * 2.0 >= usual, "{afterwards:.0} orders/s, and {usual:.0} before");
    if !cfg!(debug_assertions) {
        assert!(afterwards >= WRITTEN_PER_SECOND, "{afterwards:.0} orders/s");
    }
    drop(worker);
}

/// Claims until the backlog has no room. Returns the number of claims that were accepted.
async fn fill(app: &TestApp, url: &str, coupon: CouponId, next: &mut i64) -> usize {
    let mut all = 0;
    loop {
        let (accepted, refused) = wave(app, url, coupon, next).await;
        all += accepted;
        if refused > 0 && all >= BACKLOG {
            return all;
        }
    }
}

/// Claims of the next users at the same time. Returns the numbers of those that were accepted, and of those that were told
/// that there is no room.
async fn wave(app: &TestApp, url: &str, coupon: CouponId, next: &mut i64) -> (usize, usize) {
    let users = *next..*next + WAVE;
    *next = users.end;
    let claims = users.map(|user| try_claim(app, url, user, coupon));
    let answers: Vec<_> = join_all(claims).await.into_iter().flatten().collect();
    let told = |status: u16, code: &str| {
        let fits = |(its, body): &&(u16, serde_json::Value)| {
            *its == status && body["code"].as_str().unwrap_or_default() == code
        };
        answers.iter().filter(fits).count()
    };
    (told(202, ""), told(503, "overloaded"))
}

/// Waits until so many orders are rows. Returns how many were written in a second, from the first one on.
async fn drain(app: &TestApp, all: usize) -> f64 {
    let all = i64::try_from(all).expect("a count");
    let before = rows(app).await;
    eventually("the first order is written", async || rows(app).await > before).await;
    let (began_at, first) = (Instant::now(), rows(app).await);
    while rows(app).await < all {
        sleep(Duration::from_millis(100)).await;
    }
    (all - first) as f64 / began_at.elapsed().as_secs_f64()
}

async fn rows_if_there(app: &TestApp) -> Option<i64> {
    sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(&app.app.stores.pool).await.ok()
}
