//! Savings and cost of the buyers' locks: two workers are given the same orders, as after a take-over from a worker that
//! turns out to live. Measured by hand and printed; only ratios within one run have a meaning, and none is asserted.
//!
//! `cargo test --release --locked --test it costs::locks -- --ignored --nocapture --test-threads 1`

use std::fs;
use std::time::Duration;

use flash_sale::app::App;
use flash_sale::base::clock::Clock;
use flash_sale::base::limits;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::keys::{LogId, LogLayout};
use flash_sale::sale::log::{EntryId, GROUP, LoggedClaim, OrderLog};
use flash_sale::sale::order::insert::Written;
use redisson_locks::Names;
use sqlx::Connection;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::by_hand::cpu_seconds;
use crate::support::{OwnServers, TestApp, claims_in, lane, older_process, user};

/// Orders of a worker's batch.
const BATCH: usize = 1_000;
/// Pairs of batches in each of the four turns.
const PAIRS: usize = 10;

/// Work and time of two workers for their batches.
#[derive(Default)]
struct Costs {
    orders: usize,
    /// Until both have finished.
    took: Duration,
    /// Time of the workers, without the pauses in which they would do other work.
    busy: Duration,
    /// Transactions of Postgres that were refused, because a row was there already.
    refused: usize,
    /// Orders that were sent to Postgres, and were rows already.
    repeated: usize,
    /// CPU seconds of Postgres.
    postgres: f64,
    /// CPU seconds of Redis.
    redis: f64,
}

impl Costs {
    fn print(&self, what: &str) {
        let Self { orders, took, busy, refused, repeated, postgres, redis } = self;
        let each = |seconds: f64| seconds * 1e6 / *orders as f64;
        let each_pair = |time: &Duration| time.as_secs_f64() * 1e3 / (2 * PAIRS) as f64;
        println!(
            "{what}: a pair of batches in {:.1} ms, {:.1} ms of a worker; {refused} transactions refused, {repeated} orders repeated; CPU per order: Postgres {:.1} us, Redis {:.1} us",
            each_pair(took),
            each_pair(busy),
            each(*postgres),
            each(*redis)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: it measures"]
async fn long_what_the_buyers_locks_save_and_cost() {
    let servers = OwnServers::durable();
    let app = TestApp::on(&servers.at, &["--order-id-block", "1000"], Clock::System).await;
    let coupon = app.create_flash(1_000_000).await;
    // Beside an older process an entry has one claim, so that batches can overlap by any number of them.
    let older = older_process(&app).await;
    let claiming = app.another_instance().await;
    let mut next_user = 1;
    for shared in [0, BATCH / 10, BATCH / 2, BATCH] {
        let mut with = Costs::default();
        let mut without = Costs::default();
        // A-B-B-A: other work of the machine hits both.
        for locks in [true, false, false, true] {
            let costs = if locks { &mut with } else { &mut without };
            for _ in 0..PAIRS {
                let first_user = next_user;
                next_user += 2 * BATCH - shared;
                claim(&claiming, coupon, first_user..next_user).await;
                pair(&servers, &app, shared, locks, costs).await;
            }
        }
        println!("{shared} of {BATCH} orders in both batches");
        with.print("  with locks");
        without.print("  without   ");
    }
    older.close().await.expect("it goes");
}

async fn claim(app: &App, coupon: CouponId, users: std::ops::Range<usize>) {
    let claims = users.map(|id| {
        let id = i64::try_from(id).expect("small");
        app.claims.claim(coupon, user(id))
    });
    for claimed in futures_util::future::join_all(claims).await {
        assert_eq!(claimed.expect("Redis answers").status().code, "accepted");
    }
}

/// The first worker has read all entries of its batch. The second one takes over some of them, and reads further ones.
async fn pair(servers: &OwnServers, app: &TestApp, shared: usize, locks: bool, costs: &mut Costs) {
    let first = log(app, "first");
    let second = log(app, "second");
    first.ensure_group().await.expect("Redis answers");
    let of_first = claims_in(&first.read_new(BATCH).await.expect("Redis answers"));
    let over: Vec<String> =
        of_first[BATCH - shared..].iter().map(|claim| claim.place.entry.to_string()).collect();
    let over: Vec<&str> = over.iter().map(String::as_str).collect();
    if !over.is_empty() {
        let claim = ["XCLAIM", first.key(), GROUP, "second", "0"];
        let _: Vec<String> = app.redis(&[&claim[..], &over, &["JUSTID"]].concat()).await;
    }
    let mut of_second = of_first[BATCH - shared..].to_vec();
    of_second.extend(claims_in(&second.read_new(BATCH - shared).await.expect("Redis answers")));
    assert_eq!((of_first.len(), of_second.len()), (BATCH, BATCH));

    let began = Instant::now();
    let redis = cpu_seconds(servers.at.redis_pid.cast_unsigned());
    let postgres = cpu_of_children(servers.at.postgres_pid);
    let both =
        tokio::join!(work(app, &first, of_first, locks), work(app, &second, of_second, locks));
    costs.took += began.elapsed();
    costs.redis += cpu_seconds(servers.at.redis_pid.cast_unsigned()) - redis;
    costs.postgres += cpu_of_children(servers.at.postgres_pid) - postgres;
    costs.busy += both.0.1 + both.1.1;
    for written in both.0.0.into_iter().chain(both.1.0) {
        costs.orders += written.inserted;
        costs.repeated += written.repeated;
        costs.refused += usize::from(written.repeated > 0);
    }
}

fn log(app: &TestApp, consumer: &str) -> OrderLog {
    let stores = &app.app.stores;
    let log = LogId { lane: lane(), layout: LogLayout::Claims };
    OrderLog::new(stores.redis.clone(), &stores.keys, log, consumer.into())
}

/// Writes entries until none of this consumer is left, as write passes do. Returns the results and the time of the worker.
async fn work(
    app: &TestApp,
    log: &OrderLog,
    mut claims: Vec<LoggedClaim>,
    locks: bool,
) -> (Vec<Written>, Duration) {
    let mut all = Vec::new();
    let mut busy = Duration::ZERO;
    while !claims.is_empty() {
        let began = Instant::now();
        let names: Names =
            claims.iter().map(|claim| app.keys().order_lock_name(lane(), claim.user_id)).collect();
        let names = if locks { names } else { Names::default() };
        let guard = app.app.locks.batch(names).volatile().try_acquire().await.expect("an answer");
        let is_ours = |at: &usize| !locks || guard.holds_at(*at);
        let ours: Vec<LoggedClaim> =
            (0..claims.len()).filter(is_ours).map(|at| claims[at]).collect();
        let is_contended = ours.len() < claims.len();
        if !ours.is_empty() {
            let token = CancellationToken::new();
            all.push(
                app.app.orders.write((log.lane(), 1), &ours, &token).await.expect("it writes"),
            );
            let entries: Vec<(EntryId, u64)> =
                ours.iter().map(|claim| (claim.place.entry, 0)).collect();
            log.acknowledge(&entries).await.expect("Redis answers");
        }
        guard.release().await;
        busy += began.elapsed();
        if is_contended {
            sleep(limits::CONTENTION_PAUSE).await;
        }
        // Entries that the other worker has acknowledged meanwhile are gone.
        let pending = log.read_pending(BATCH, EntryId::default()).await;
        claims = claims_in(&pending.expect("Redis answers"));
    }
    (all, busy)
}

/// CPU seconds of the processes whose parent this is.
fn cpu_of_children(parent: i32) -> f64 {
    let parent = parent.to_string();
    let processes = fs::read_dir("/proc").expect("Linux has it").filter_map(Result::ok);
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let children = ids.filter(|id| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let after_name = stat.rsplit_once(')').map_or("", |(_, after)| after);
        after_name.split_whitespace().nth(1) == Some(&parent)
    });
    children.map(cpu_seconds).sum()
}
