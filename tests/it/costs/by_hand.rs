//! Costs that are measured by hand: of units that come back to a large sold-out sale, and of requests that wait for
//! their order while a backlog is written. Figures are printed; ratios within one run have goals, which are asserted.
//!
//! `cargo test --release --locked --test it costs::by_hand -- --ignored --nocapture --test-threads 1`

use std::fs;
use std::time::Duration;

use flash_sale::base::clock::Clock;
use flash_sale::sale::buyers;
use flash_sale::sale::ids::CouponId;
use futures_util::future::join_all;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::support::buyers::FIRST_ORDER_BY_HAND;
use crate::support::process::{Process, backlog, flash_sale, rows, try_claim};
use crate::support::{OwnServers, TestApp, eventually, median, user};

/// Buyers of the large sale.
const BUYERS: i64 = 300_000;
/// Clients that are refused, and the pause of each between two claims.
const CLIENTS: i64 = 8;
const PACE: Duration = Duration::from_millis(5);
/// Duration of each phase.
const PHASE: Duration = Duration::from_secs(8);
/// Pause between two units that come back.
const CANCEL_PERIOD: Duration = Duration::from_millis(500);
/// More users than ask in a phase, and more units than come back in one.
const USERS_OF_A_PHASE: i64 = 1 << 32;
const CANCELS_OF_A_PHASE: i64 = 1_000;
/// Largest ratios of a phase with units that come back to one without. With a reader of all buyers for each unit they were
/// 10 and 4.4 (`docs/performance.md`).
const CPU_MAX: f64 = 4.0;
const P99_MAX: f64 = 3.0;

/// Accepted claims of the backlog, and requests that wait beside it.
const BACKLOG: i64 = 20_000;
const WAITERS: i64 = 256;
/// Smallest ratio of the rate beside the waiters to the rate alone. Waiters that each look for their order halve it.
const DRAIN_MIN: f64 = 0.75;

/// Smallest ratio of the rate of the last units of a sale that come back to that of the first ones.
const LAST_TO_FIRST_MIN: f64 = 0.5;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: it measures"]
async fn long_units_that_come_back_to_a_large_sold_out_sale() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    app.expect_disagreements();
    let coupon = app.create_flash(BUYERS).await;
    app.sell_out_by_hand(coupon, BUYERS).await;
    let service = serve(&app, "api");
    let url = service.url().await;

    let (mut cpu, mut p99) = (Vec::new(), Vec::new());
    for round in 0..3 {
        let others = |phase: i64| (1 << 41) + (3 * round + phase) * USERS_OF_A_PHASE;
        // The buyers are read meanwhile, because so many users ask.
        refusals(&app, &url, coupon, others(2), Duration::ZERO).await;
        let quiet = measure(&service, refusals(&app, &url, coupon, others(0), PACE)).await;
        quiet.print("nothing comes back");
        let coming_back = async {
            let (refused, ()) = tokio::join!(
                refusals(&app, &url, coupon, others(1), PACE),
                cancels(&app, &url, coupon, round * CANCELS_OF_A_PHASE)
            );
            refused
        };
        let busy = measure(&service, coming_back).await;
        busy.print("a unit every 0.5 s");
        cpu.push(busy.cpu / quiet.cpu);
        p99.push(busy.p99.as_secs_f64() / quiet.p99.as_secs_f64());
    }
    let [cpu, p99] = [cpu, p99].map(median);
    println!("a unit every 0.5 s: {cpu:.1} times the CPU of the service, {p99:.1} times the p99");
    assert!(cpu <= CPU_MAX && p99 <= P99_MAX, "{cpu:.1}, {p99:.1}");
}

#[tokio::test]
#[ignore = "long: it measures"]
async fn long_what_a_buyer_costs_to_read_and_a_question_to_ask() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &["--sold-out-memory-ms", "60000"], Clock::System).await;
    app.expect_disagreements();
    let coupon = app.create_flash(BUYERS).await;
    app.sell_out_by_hand(coupon, BUYERS).await;
    let used =
        || cpu_seconds(std::process::id()) + cpu_seconds(servers.at.redis_pid.cast_unsigned());

    // This process doesn't listen, so it believes nothing, and asks Redis for each claim.
    let questions = 20_000;
    let before = used();
    for id in 0..questions {
        let told = app.app.claims.claim(coupon, user((1 << 40) + id)).await;
        assert_eq!(told.expect("Redis answers").status().code, "sold_out");
    }
    let question = (used() - before) / questions as f64;
    let rounds = 5;
    let before = used();
    for _ in 0..rounds {
        let mut pages = buyers::Pages::begin(&app.app.stores.redis, app.keys(), coupon)
            .await
            .expect("Redis answers");
        while pages.next().await.expect("Redis answers").is_some() {}
    }
    let buyer = (used() - before) / (rounds * BUYERS) as f64;
    println!(
        "service and Redis together: {:.1} us of CPU for a question, {:.2} us to read a buyer: {:.0} to one",
        question * 1e6,
        buyer * 1e6,
        question / buyer
    );
}

/// Claims that are refused, for a phase. Returns the time of each.
async fn refusals(
    app: &TestApp,
    url: &str,
    coupon: CouponId,
    first: i64,
    pace: Duration,
) -> Vec<Duration> {
    let client = async |n: i64| {
        let mut took = Vec::new();
        let mut id = first + n;
        let end = Instant::now() + PHASE;
        while Instant::now() < end {
            let asked = Instant::now();
            let (status, body) = try_claim(app, url, id, coupon).await.expect("it answers");
            took.push(asked.elapsed());
            // Few of these users meet a unit that has just come back.
            assert!(status == 202 || body["code"] == "sold_out", "{status} {body}");
            id += CLIENTS;
            tokio::time::sleep(pace).await;
        }
        took
    };
    join_all((0..CLIENTS).map(client)).await.into_iter().flatten().collect()
}

/// Brings a unit back twice a second until the phase is over, as the script does, from the buyer after this one on; a
/// newcomer buys it.
async fn cancels(app: &TestApp, url: &str, coupon: CouponId, after: i64) {
    let mut ticks = interval(CANCEL_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let end = Instant::now() + PHASE;
    for buyer in after + 1.. {
        ticks.tick().await;
        if Instant::now() >= end {
            return;
        }
        app.bring_back_by_hand(coupon, buyer).await;
        try_claim(app, url, (1 << 43) + buyer, coupon).await;
    }
}

/// Times and costs of one phase.
struct Measured {
    p50: Duration,
    p99: Duration,
    count: usize,
    /// Seconds of a processor for a second.
    cpu: f64,
}

impl Measured {
    fn print(&self, what: &str) {
        let Self { p50, p99, count, cpu } = self;
        println!(
            "{what}: {count} refusals, p50 {p50:.2?}, p99 {p99:.2?}; CPU of the service {:.1} %",
            cpu * 100.0
        );
    }
}

async fn measure(service: &Process, work: impl Future<Output = Vec<Duration>>) -> Measured {
    let began = Instant::now();
    let before = cpu_seconds(service.pid());
    let mut took = work.await;
    let cpu = (cpu_seconds(service.pid()) - before) / began.elapsed().as_secs_f64();
    took.sort();
    let at = |share: usize| took[took.len() * share / 100];
    Measured { p50: at(50), p99: at(99), count: took.len(), cpu }
}

/// Processor time that the process has used, at 100 ticks a second.
pub(super) fn cpu_seconds(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let (_, after_name) = stat.rsplit_once(')').expect("the name is in brackets");
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    (ticks(11) + ticks(12)) / 100.0
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: it measures"]
async fn long_requests_that_wait_while_a_backlog_is_written() {
    let servers = OwnServers::durable();
    let mut ratios = Vec::new();
    for round in 1..=3 {
        let alone = drain(&servers, 0).await;
        let beside = drain(&servers, WAITERS).await;
        println!(
            "round {round}: {alone:.0} rows a second alone, {beside:.0} beside {WAITERS} waiters: {:.2}",
            beside / alone
        );
        ratios.push(beside / alone);
    }
    let ratio = median(ratios);
    assert!(ratio >= DRAIN_MIN, "{ratio:.2}");
}

/// Rows a second of a worker that writes a backlog, while so many requests wait for orders at its end.
async fn drain(servers: &OwnServers, waiters: i64) -> f64 {
    let app = TestApp::on(&servers.at, &["--database-connections", "20"], Clock::System).await;
    backlog(&app, BACKLOG).await;
    let last = app.create_flash(waiters.max(1)).await;
    let api = serve(&app, "api");
    let url = api.url().await;
    let waiting = join_all((1..=waiters).map(|id| {
        let request = app.client().post(format!("{url}/v1/coupons/{last}/claims"));
        request.bearer_auth(app.token(id)).header("prefer", "wait=10").send()
    }));
    let writing = async {
        eventually("all wait", async || app.buyers_count(last).await == waiters).await;
        let worker = serve(&app, "worker");
        eventually("it writes", async || rows(&app).await > 0).await;
        let began = Instant::now();
        let before = rows(&app).await;
        let sold = "SELECT sum(sold)::bigint FROM flash_sales";
        eventually("all is written", async || app.number(sold).await == BACKLOG + waiters).await;
        let rate = (BACKLOG + waiters - before) as f64 / began.elapsed().as_secs_f64();
        drop(worker);
        rate
    };
    let (replies, rate) = tokio::join!(waiting, writing);
    let created = replies
        .into_iter()
        .filter(|reply| reply.as_ref().is_ok_and(|reply| reply.status().as_u16() == 201));
    println!("{} of {waiters} were told the order that was written", created.count());
    rate
}

/// A process with the settings of production.
fn serve(app: &TestApp, role: &str) -> Process {
    let mut command = flash_sale(&["serve", "--listen", "127.0.0.1:0", "--roles", role]);
    command.args(["--admin-listen", "127.0.0.1:0"]).args(app.store_arguments());
    Process::spawn(command)
}

/// A hot sale without a single payment: all its orders run out. A unit must not cost more, the more have come back before
/// it.
#[tokio::test]
#[ignore = "long: it measures"]
async fn long_all_units_of_a_large_sale_come_back() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    app.expect_disagreements();
    let coupon = app.create_flash(BUYERS).await;
    app.sell_out_by_hand(coupon, BUYERS).await;
    app.execute(&format!(
        "SET LOCAL statement_timeout = '60s';
         INSERT INTO orders (id, coupon_id, kind, user_id, status, claimed_at, expired_at)
             SELECT {FIRST_ORDER_BY_HAND} + n, {coupon}, 'flash', n, 'expired', now(), now()
             FROM generate_series(1, {BUYERS}) AS n;
         INSERT INTO stock_returns (order_id, coupon_id, user_id)
             SELECT {FIRST_ORDER_BY_HAND} + n, {coupon}, n FROM generate_series(1, {BUYERS}) AS n"
    ))
    .await;
    let mut rates = Vec::new();
    let mut began = Instant::now();
    while let more @ 1.. = app.give_back().await {
        rates.push(more as f64 / began.elapsed().as_secs_f64());
        began = Instant::now();
    }
    assert_eq!(app.stock(coupon).await, BUYERS);
    println!("units/s of each run: {rates:.0?}");
    let third = rates.len() / 3;
    let (first, last) = (rates[..third].to_vec(), rates[rates.len() - third..].to_vec());
    let ratio = median(last) / median(first);
    println!("last third / first third: {ratio:.2}");
    assert!(ratio >= LAST_TO_FIRST_MIN, "{ratio:.2}");
}
