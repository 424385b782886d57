//! Lanes without entries: their cost, their wake-up, and a quiet start.

use std::time::Duration;

use flash_sale::app;
use flash_sale::base::clock::Clock;
use flash_sale::store::ids::Lane;
use flash_sale::worker;
use private_servers::testing::RedisServer;
use tokio::time::{Instant, sleep};

use crate::support::process::{Process, rows};
use crate::support::servers::Addresses;
use crate::support::{OwnServers, SECRET, TestApp, eventually, patience, shared};

/// A number in a section of INFO.
async fn info(app: &TestApp, field: &str) -> u64 {
    let info: String = app.redis(&["INFO", "everything"]).await;
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("no {field}"))
}

/// Lanes of an installation that may have no more.
const LANES: usize = 63;
/// Commands a second that they may cost at rest.
const RATE_MAX: f64 = 1_500.0;
/// Connections that they may cost.
const CONNECTIONS_MAX: u64 = 300;

/// One of the process's Redis, of its own: its commands are counted.
async fn with_all_lanes() -> (RedisServer, TestApp) {
    let server = RedisServer::start(&[]);
    let at = Addresses { redis_url: server.url(), ..shared().clone() };
    let app = TestApp::on(&at, &["--lanes", &LANES.to_string()], Clock::System).await;
    (server, app)
}

async fn have_groups(app: &TestApp) {
    let groups = async || app.redis::<Vec<String>>(&["KEYS", "*:log"]).await.len();
    eventually("the lanes have groups", async || groups().await == LANES).await;
}

/// Waits for the comparison that begins with the workers: the next one is due a minute later.
async fn compared_once(app: &TestApp) {
    let done =
        "SELECT count(*) FROM reconcile_runs WHERE finished_at IS NOT NULL AND failure IS NULL";
    let going_on = "SELECT count(*) FROM reconcile_runs WHERE finished_at IS NULL";
    let is_done = async || app.number(done).await > 0 && app.number(going_on).await == 0;
    eventually("the stores have been compared", is_done).await;
}

/// Commands a second in each of so many windows. In commands a second, because that is the cost; a slower machine counts
/// less.
async fn rates(app: &TestApp, windows: usize, length: Duration) -> Vec<f64> {
    let mut rates = Vec::new();
    let mut counted = (info(app, "total_commands_processed").await, Instant::now());
    for _ in 0..windows {
        sleep(length).await;
        let now = (info(app, "total_commands_processed").await, Instant::now());
        rates.push((now.0 - counted.0) as f64 / (now.1 - counted.1).as_secs_f64());
        counted = now;
    }
    rates
}

#[tokio::test]
async fn lanes_at_rest_cost_few_commands_and_connections() {
    let (_server, app) = with_all_lanes().await;
    app::start_housekeeping(&app.app);
    worker::start(&app.app, &app.config);
    have_groups(&app).await;
    compared_once(&app).await;
    let window = Duration::from_secs(4);
    let at_rest = async || rates(&app, 1, window).await[0] <= RATE_MAX;
    eventually("they are at rest", at_rest).await;
    // Each of these counts, not only the best one.
    let rates = rates(&app, 3, window).await;
    assert!(rates.iter().all(|rate| *rate <= RATE_MAX), "{rates:.0?}");
    let connections = info(&app, "connected_clients").await;
    assert!(connections <= CONNECTIONS_MAX, "{connections}");

    // The lanes wake up.
    for number in [1, 30, 62] {
        let coupon = loop {
            let coupon = app.create_flash(1).await;
            if coupon.lane().get() >= number {
                break coupon;
            }
            let skip = format!("SELECT setval('coupon_sequence', {})", number - 1);
            assert!(app.number(&skip).await > 0);
        };
        assert_eq!(app.claim(1, coupon).await.status, 202);
    }
    eventually("they have written", async || rows(&app).await == 3).await;
    assert!(app.app.shutdown.stop(patience()).await);
}

#[tokio::test]
async fn a_lane_at_rest_notices_that_its_group_has_vanished() {
    let app = TestApp::with_lanes(2).await;
    worker::start(&app.app, &app.config);
    let logs: Vec<String> = Lane::all(2).map(|lane| app.log(lane)).collect();
    let has_group = async |log: &str| {
        let groups: Result<Vec<redis::Value>, _> =
            app.app.stores.fleet.first().query(redis::cmd("XINFO").arg("GROUPS").arg(log)).await;
        groups.is_ok_and(|groups| groups.len() == 1)
    };
    for log in &logs {
        eventually("the group is there", async || has_group(log).await).await;
    }
    let destroyed: i64 = app.redis(&["XGROUP", "DESTROY", &logs[0], "order-writers"]).await;
    let deleted: i64 = app.redis(&["DEL", &logs[1]]).await;
    assert_eq!((destroyed, deleted), (1, 1));
    for log in &logs {
        eventually("it is there again", async || has_group(log).await).await;
    }
    assert!(app.app.shutdown.stop(patience()).await);
}

/// An installation without flaws, of which its start would warn.
const FLAWLESS: [&str; 6] = [
    "--payment-callback-secret",
    SECRET,
    "--gateway-url",
    "http://127.0.0.1:1",
    "--connections-max",
    "100",
];

/// Words of the warnings that a slow machine earns.
const SLOW: [&str; 3] =
    ["slow statement", "statement timeout", "locks were lost before the commit"];

#[tokio::test(flavor = "multi_thread")]
async fn the_first_start_has_nothing_to_warn_of() {
    let servers = tokio::task::block_in_place(OwnServers::durable);
    for lanes in ["1", "8"] {
        let app = TestApp::on(&servers.at, &[], Clock::System).await;
        let settings = [&FLAWLESS[..], &["--lanes", lanes]].concat();
        let mut process = Process::serve(&app, &settings);
        let url = process.url().await;
        for user in 1..=16 {
            let coupon = app.create_flash(1).await;
            let reply = crate::support::process::try_claim(&app, &url, user, coupon).await;
            assert_eq!(reply.expect("it runs").0, 202);
        }
        eventually("all of it is written", async || rows(&app).await == 16).await;
        process.assert_stops().await;
        let said = process.said().await;
        assert!(said.contains("INFO"), "lines have their level: {said}");
        let is_warning = |line: &&str| {
            let has = |words: &&str| line.contains(words);
            ["WARN", "ERROR"].iter().any(has) && !SLOW.iter().any(has)
        };
        let warnings: Vec<&str> = said.lines().filter(is_warning).collect();
        assert!(warnings.is_empty(), "{lanes} lanes: {warnings:#?}");
    }
}
