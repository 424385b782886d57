//! Times in which the service is well again after a fault. `make faults` runs these tests, and prints what they saw;
//! with other tests beside they would say more about the machine.

use std::time::Duration;

use private_servers::testing::RedisProxy;
use tokio::time::{Instant, sleep};

use crate::support::load::Load;
use crate::support::process::{Process, flash_sale, rows};
use crate::support::{TestApp, eventually, lane, proxy_before, store_arguments_behind};

/// Clients that claim during a fault.
const CLIENTS: i64 = 8;
/// Units on sale: no claim is refused.
const STOCK: i64 = 10_000_000;
/// Time for which a fault lasts, and for which claims are counted after it.
const SPAN: Duration = Duration::from_secs(3);
/// Time after a fault from which on nearly all claims are answered.
const HEALED_WITHIN: Duration = Duration::from_secs(3);
/// Time by which bad entries may delay the rows of good ones.
const DELAYED_BY: Duration = Duration::from_secs(1);
/// Time within which the entries of a group that was destroyed are rows.
const WRITTEN_WITHIN: Duration = Duration::from_secs(2);
/// Time within which a bad entry is a dead letter.
const PUT_ASIDE_WITHIN: Duration = Duration::from_secs(10);

/// The way to Redis: commands that are held back, connections that are reset, connections on which nothing arrives.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make faults"]
async fn long_nearly_all_claims_are_answered_soon_after_the_way_to_redis_heals() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(STOCK).await;
    let proxy = proxy_before(&app, ":unpaid").await;
    let mut arguments = vec!["serve", "--listen", "127.0.0.1:0"];
    let stores = store_arguments_behind(&app, &proxy);
    arguments.extend(stores.iter().map(String::as_str));
    let service = Process::spawn(flash_sale(&arguments));
    let load = Load::start(&service.url().await, coupon, CLIENTS);
    for fault in ["held back", "reset", "silent"] {
        load.accepts(100).await;
        let before = load.unknown();
        harm(&proxy, fault, async || load.unknown() > before).await;
        sleep(HEALED_WITHIN).await;
        let (accepted, unknown) = (load.accepted(), load.unknown());
        sleep(SPAN).await;
        let (accepted, unknown) = (load.accepted() - accepted, load.unknown() - unknown);
        println!(
            "{fault}: {accepted} of {} claims accepted, {HEALED_WITHIN:?} after it healed",
            accepted + unknown
        );
        assert!(
            accepted > 0 && unknown * 19 <= accepted,
            "{fault}: {unknown} unknown, {accepted} accepted"
        );
    }
    let promised = load.finish().await.promised.len();
    all_are_rows(&app, promised).await;
}

/// A fault that lasts until a claim has met it.
async fn harm(proxy: &RedisProxy, fault: &str, met: impl AsyncFnMut() -> bool) {
    match fault {
        "held back" => proxy.hold(),
        "reset" => proxy.cut().await,
        _ => proxy.silence(),
    }
    sleep(SPAN).await;
    eventually("a claim meets the fault", met).await;
    proxy.release();
    proxy.heal();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make faults"]
async fn long_bad_entries_delay_good_ones_by_moments() {
    let app = TestApp::start().await;
    let service = Process::serve(&app, &[]);
    let alone = longest_lag(&app, &service, async |_| {}).await;
    let mut bad = 0;
    let began_at = Instant::now();
    let beside = longest_lag(&app, &service, async |n| {
        bad += 1;
        app.append(lane(), &["coupon", "999424", "user", "1", "order", &n.to_string()]).await;
    })
    .await;
    let letters = async || app.number("SELECT count(*) FROM dead_letters").await;
    eventually("the bad ones are put aside", async || letters().await == bad).await;
    println!(
        "the slowest row took {alone:.0?} alone, {beside:.0?} beside {bad} bad entries, put aside {:.1?} after the first",
        began_at.elapsed()
    );
    assert!(beside <= alone + DELAYED_BY, "{beside:?}");
    assert!(began_at.elapsed() <= SPAN + PUT_ASIDE_WITHIN, "{:?}", began_at.elapsed());
}

/// The longest time in which all that was promised at a moment became rows, looked at again and again while clients
/// claim a new sale. Before each check comes a deed.
async fn longest_lag(app: &TestApp, service: &Process, mut deed: impl AsyncFnMut(i64)) -> Duration {
    let coupon = app.create_flash(STOCK).await;
    let already = usize::try_from(rows(app).await).expect("a count");
    let load = Load::start(&service.url().await, coupon, CLIENTS);
    load.accepts(100).await;
    let (began_at, mut longest, mut checks) = (Instant::now(), Duration::ZERO, 0);
    while began_at.elapsed() < SPAN {
        checks += 1;
        deed(checks).await;
        let (promised, at) = (already + load.accepted(), Instant::now());
        all_are_rows(app, promised).await;
        longest = longest.max(at.elapsed());
    }
    let promised = already + load.finish().await.promised.len();
    all_are_rows(app, promised).await;
    longest
}

async fn all_are_rows(app: &TestApp, promised: usize) {
    let promised = i64::try_from(promised).expect("a count");
    eventually("the promised orders are rows", async || rows(app).await >= promised).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make faults"]
async fn long_a_group_and_scripts_that_are_gone_are_there_again_within_moments() {
    let app = TestApp::start().await;
    let service = Process::serve(&app, &[]);
    let log = app.log(lane());
    let began_at = Instant::now();
    let longest = longest_lag(&app, &service, async |_| {
        let _: i64 = app.redis(&["XGROUP", "DESTROY", &log, "order-writers"]).await;
        let _: String = app.redis(&["SCRIPT", "FLUSH", "SYNC"]).await;
    })
    .await;
    let said = service.said_so_far();
    let told = said.lines().filter(|line| line.contains("lane=")).count();
    let seconds = began_at.elapsed().as_secs() + 1;
    println!(
        "group and scripts gone: all was written within {longest:.1?}; {told} lines in {seconds} s"
    );
    assert!(longest <= WRITTEN_WITHIN, "{longest:?}");
    assert!((1..=seconds).contains(&(told as u64)), "{said}");
}
