//! Lanes and their owners: workers share the lanes, one that goes hands its lanes over, and a lost lock does no harm.

use std::collections::BTreeMap;

use nix::sys::signal::Signal;
use tokio::time::Instant;

use crate::faults::processes::print_recovery;
use crate::support::process::{Process, backlog, flash_sale, pending, rows, try_claim, written};
use crate::support::{TestApp, eventually, proxy_before, store_arguments_behind};

/// Lanes of the installation.
const LANES: i64 = 6;

/// The session of Postgres that owns each lane.
pub async fn owners(app: &TestApp) -> Vec<i32> {
    let owners = "SELECT pid FROM pg_locks
         WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock' AND classid = x'6c616e65'::int::oid
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    sqlx::query_scalar(owners).fetch_all(&app.app.stores.pool).await.expect("Postgres answers")
}

/// Lanes that each session owns, the fewest first.
async fn shares(app: &TestApp) -> Vec<i64> {
    let mut lanes = BTreeMap::new();
    owners(app).await.into_iter().for_each(|owner| *lanes.entry(owner).or_default() += 1);
    let mut shares: Vec<i64> = lanes.into_values().collect();
    shares.sort_unstable();
    shares
}

async fn eventually_share(app: &TestApp, expected: &[i64]) {
    let shared = async || shares(app).await == expected;
    eventually(&format!("the lanes are shared: {expected:?}"), shared).await;
}

fn worker(app: &TestApp) -> Process {
    Process::serve(app, &["--roles", "worker"])
}

/// Sells a unit in each of so many sales, which lie in different lanes.
async fn sell(app: &TestApp, api: &str, user: i64) -> BTreeMap<i64, i64> {
    let mut lanes = BTreeMap::new();
    while lanes.len() < usize::try_from(LANES).expect("a few") {
        let coupon = app.create_flash(1).await;
        let (status, body) = try_claim(app, api, user, coupon).await.expect("it runs");
        assert_eq!(status, 202, "{body}");
        *lanes.entry(i64::from(coupon.lane().get())).or_insert(0) += 1;
    }
    lanes
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_share_the_lanes_and_those_of_one_that_goes_are_handed_over() {
    let app = TestApp::configured(&["--lanes", &LANES.to_string()]).await;
    let api = Process::serve(&app, &["--roles", "api"]);
    let api = api.url().await;
    let mut sold = sell(&app, &api, 1).await.values().sum::<i64>();
    let mut first = worker(&app);
    eventually_share(&app, &[LANES]).await;
    let mut second = worker(&app);
    eventually_share(&app, &[3, 3]).await;
    let _third = worker(&app);
    eventually_share(&app, &[2, 2, 2]).await;
    sold += sell(&app, &api, 2).await.values().sum::<i64>();
    eventually("all lanes are written", async || rows(&app).await == sold).await;

    first.kill();
    eventually_share(&app, &[3, 3]).await;
    sold += sell(&app, &api, 3).await.values().sum::<i64>();
    eventually("all lanes are written", async || rows(&app).await == sold).await;

    second.assert_stops().await;
    eventually_share(&app, &[LANES]).await;
    sold += sell(&app, &api, 4).await.values().sum::<i64>();
    eventually("all lanes are written", async || rows(&app).await == sold).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_reaches_postgres_and_not_redis_lets_go_of_its_lanes() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    // Each connection begins with a question about the server.
    let proxy = proxy_before(&app, "INFO").await;
    let mut cut_off = flash_sale(&["serve", "--roles", "worker"]);
    cut_off.args(store_arguments_behind(&app, &proxy));
    let _cut_off = Process::spawn(cut_off);
    eventually_share(&app, &[1]).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    eventually("the first one writes", async || rows(&app).await == 1).await;
    let _other = worker(&app);
    proxy.cut().await;
    assert_eq!(app.claim(2, coupon).await.status, 202);
    eventually("the other one writes", async || rows(&app).await == 2).await;
}

/// The process notices only later, and goes on meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lock_costs_no_order_and_makes_none_twice() {
    const CLAIMS: i64 = 3_000;
    let app = TestApp::start().await;
    let promised = backlog(&app, CLAIMS).await;
    let _workers =
        [(); 2].map(|()| Process::serve(&app, &["--roles", "worker", "--batch-orders-max", "20"]));
    let lose = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks
         WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND classid = x'6c616e65'::int::oid
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let mut lost = 0;
    eventually("everything is written", async || {
        lost += app.number(lose).await;
        rows(&app).await == CLAIMS
    })
    .await;
    assert!(lost > 0, "no lock was lost in the middle of it");
    eventually("everything is acknowledged", async || pending(&app).await == 0).await;
    assert_eq!(written(&app).await, promised);
    assert_eq!(app.number("SELECT count(*) FROM dead_letters").await, 0);
    assert_eq!(app.number("SELECT sold FROM flash_sales").await, CLAIMS);
}

/// Postgres frees the lanes of a paused process. After the pause the process writes what it had read, gives its lanes up,
/// and stands by.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_paused_for_longer_than_its_session_may_be_idle_stands_by() {
    let app = TestApp::start().await;
    let promised = backlog(&app, 500).await;
    let paused = Process::serve(&app, &["--roles", "worker", "--batch-orders-max", "20"]);
    eventually("it is in the middle of it", async || rows(&app).await > 0).await;
    paused.signal(Signal::SIGSTOP);
    let paused_at = Instant::now();
    let other = worker(&app);
    eventually("everything is written", async || rows(&app).await == 500).await;
    print_recovery("a worker paused", paused_at);
    paused.signal(Signal::SIGCONT);
    eventually("everything is acknowledged", async || pending(&app).await == 0).await;
    assert_eq!(written(&app).await, promised);
    eventually_share(&app, &[1]).await;
    drop(other);
    let coupon = app.create_flash(1).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    eventually("the one that was paused writes", async || rows(&app).await == 501).await;
}
