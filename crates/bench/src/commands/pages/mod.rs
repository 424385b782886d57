//! `flash-sale-bench pages`: the budgets of the pages. Their sizes as they are sent; CPU time and memory of a service with
//! thousands of watchers; its claims with them beside those without them; and its stop with all streams open.
//!
//! Watchers see a sale that changes once a second, which is as often as a stream tells anything. The bench reads all
//! streams on the same machine, so the ratio of the claims has the cost of both ends in it.

mod figures;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::time::sleep;

use self::figures::{Budgets, PLACE, Watched};
use super::binary;
use super::session::with_target;
use crate::arguments::pages::PagesArguments;
use crate::load::connection::Address;
use crate::load::pace::Pace;
use crate::load::scenario::Scenario;
use crate::load::watchers::Watchers;
use crate::measure::bench::Bench;
use crate::measure::progress::Progress;
use crate::measure::weights;
use crate::report::document::Document;
use crate::results::machine::Machine;
use crate::service::cpu::resident_bytes;
use crate::service::keeper::Kept;
use crate::service::target::Target;
use flash_sale::base::shutdown::{Shutdown, StopRequests};
use flash_sale::kit::open_files;
use flash_sale::sale::ids::CouponId;

/// Units and users of the sale that is watched: one a second, for longer than any run.
const WATCHED_UNITS: usize = 10_000;
/// Connections beside those of the watchers.
const CONNECTIONS_BESIDE: u32 = 2_000;
/// Time in which a service is left alone before its CPU time is read.
const QUIET: Duration = Duration::from_secs(2);

/// Measures, prints, and writes the table into the document that was named.
pub async fn run(
    arguments: PagesArguments,
    stop_requests: &mut StopRequests,
) -> anyhow::Result<()> {
    // Whatever can't be done is refused before anything starts.
    let document = arguments.document.as_deref();
    let document = document.map(|path| Document::read(path, "--document", &[PLACE])).transpose()?;
    let binary = binary::of_service(arguments.binary.as_deref())?;
    if let Err(error) = open_files::raise_limit() {
        tracing::debug!(%error, "the limit on open files could not be raised");
    }
    let shutdown = Shutdown::default();
    let client = arguments.client.clone();
    let slices = 2.0 * f64::from(arguments.pairs);
    let seconds = slices * (client.seconds + client.warm_up_seconds) + arguments.watched_seconds;
    let mut bench = Bench::new(client, Progress::new(seconds), shutdown.clone());
    bench.progress.say("weighing the pages");
    let [shop_bytes, all_bytes] = weigh(&binary, &shutdown).await?;
    let service = service_arguments(arguments.watchers).join(" ");
    let starting = Target::start("", &binary, &service, &shutdown);
    let measured = with_target(&mut bench, starting, stop_requests, async |bench, target| {
        let machine = Machine::look(target).await?;
        let watched = watch(&arguments, bench, target).await?;
        let ratios = claims(&arguments, bench, target).await?;
        let stop = stop(&arguments, &binary, bench, target).await?;
        let verdict = target.judge().await?;
        let watchers = arguments.watchers;
        Ok(Budgets { machine, watchers, shop_bytes, all_bytes, watched, ratios, stop, verdict })
    });
    let budgets = measured.await?;
    drop(bench);
    println!("{}", budgets.text());
    budgets.verdict.believe()?;
    document.map_or(Ok(()), |document| document.write(&[(PLACE, budgets.text())]))
}

fn service_arguments(watchers: u32) -> [String; 8] {
    let connections = watchers + CONNECTIONS_BESIDE;
    [
        "--pages".to_owned(),
        "shop".to_owned(),
        "--watchers-max".to_owned(),
        watchers.to_string(),
        "--connections-max".to_owned(),
        connections.to_string(),
        // All watchers come from one address.
        "--anonymous-requests-per-second".to_owned(),
        "0".to_owned(),
    ]
}

/// Bytes of the shopper's page, and of all pages.
async fn weigh(binary: &Path, shutdown: &Shutdown) -> anyhow::Result<[u64; 2]> {
    let demo = Kept::start_demo(binary, shutdown).await?;
    let address = Address::of(&demo.url).await?;
    let shop = weights::of(&address, &["/"]).await;
    let all = weights::of(&address, &["/", "/board", "/storm", "/claim/1"]).await;
    demo.stop().await?;
    Ok([shop?, all?])
}

/// CPU time and memory with the watchers, and without them.
async fn watch(
    arguments: &PagesArguments,
    bench: &Bench,
    target: &mut Target,
) -> anyhow::Result<Watched> {
    let coupon = target.open_sale(i64::try_from(WATCHED_UNITS)?).await?;
    let seller = target.sell_slowly(coupon, WATCHED_UNITS, &bench.shutdown).await?;
    let seconds = Duration::from_secs_f64(arguments.watched_seconds);
    sleep(QUIET).await;
    let alone = share_of_a_core(target, QUIET).await?;
    let memory_before = memory(target)?;
    let mut watchers = open(arguments, bench, &target.address, coupon).await?;
    bench.progress.say("watching");
    sleep(QUIET).await;
    let events = watchers.events();
    let began = Instant::now();
    let share = share_of_a_core(target, seconds).await?;
    let events_per_second = (watchers.events() - events) as f64 / began.elapsed().as_secs_f64();
    bench.progress.passed(seconds);
    let memory = memory(target)?;
    all_open(arguments, &mut watchers)?;
    target.enter(coupon, seller).await?;
    Ok(Watched { share, alone, memory, memory_before, events_per_second })
}

/// Claims a second with watchers / without, pair by pair.
async fn claims(
    arguments: &PagesArguments,
    bench: &mut Bench,
    target: &mut Target,
) -> anyhow::Result<Vec<f64>> {
    bench.calibrate(target).await?;
    let mut ratios = Vec::new();
    for pair in 0..arguments.pairs {
        let mut rates = [0.0; 2];
        // There and back again: a drift of the machine hits both alike.
        let order = if pair % 2 == 0 { [false, true] } else { [true, false] };
        for watched in order {
            rates[usize::from(watched)] = slice(arguments, bench, target, watched).await?;
        }
        ratios.push(rates[1] / rates[0]);
    }
    Ok(ratios)
}

/// Claims a second of one slice. The sale that is watched goes on beside it in any case.
async fn slice(
    arguments: &PagesArguments,
    bench: &mut Bench,
    target: &mut Target,
    watched: bool,
) -> anyhow::Result<f64> {
    let coupon = target.open_sale(i64::try_from(WATCHED_UNITS)?).await?;
    let seller = target.sell_slowly(coupon, WATCHED_UNITS, &bench.shutdown).await?;
    let mut watchers = match watched {
        true => Some(open(arguments, bench, &target.address, coupon).await?),
        false => None,
    };
    let slice = bench.slice(target, Scenario::Win, Pace::Closed).await?;
    if let Some(watchers) = &mut watchers {
        all_open(arguments, watchers)?;
    }
    drop(watchers);
    target.enter(coupon, seller).await?;
    Ok(slice.good_per_second)
}

/// Time from the signal to the end of a process with all streams open.
async fn stop(
    arguments: &PagesArguments,
    binary: &Path,
    bench: &Bench,
    target: &mut Target,
) -> anyhow::Result<Duration> {
    let further = service_arguments(arguments.watchers);
    let further: Vec<&str> = further.iter().map(String::as_str).collect();
    let door = target.start_door(binary, &further, &bench.shutdown).await?;
    let coupon = target.open_sale(1).await?;
    let mut watchers = open(arguments, bench, &door, coupon).await?;
    all_open(arguments, &mut watchers)?;
    bench.progress.say("stopping a process with all streams open");
    let took = target.stop_door().await?;
    watchers.ended().await;
    Ok(took)
}

/// A stream that has ended costs nothing any more, so no figure counts without it.
fn all_open(arguments: &PagesArguments, watchers: &mut Watchers) -> anyhow::Result<()> {
    let (open, all) = (watchers.open_streams(), arguments.watchers as usize);
    if open < all {
        bail!("the service has ended {} streams", all - open);
    }
    Ok(())
}

async fn open(
    arguments: &PagesArguments,
    bench: &Bench,
    address: &Address,
    coupon: CouponId,
) -> anyhow::Result<Watchers> {
    bench.progress.say(format!("{} watchers come", arguments.watchers));
    Watchers::open(address, coupon, arguments.watchers as usize).await
}

/// CPU time of the service during this time, as a share of one core.
async fn share_of_a_core(target: &Target, time: Duration) -> anyhow::Result<f64> {
    let read = || target.processes.read().service.context("CPU times are known on Linux only");
    let (before, began) = (read()?, Instant::now());
    sleep(time).await;
    Ok((read()? - before) / began.elapsed().as_micros() as f64)
}

fn memory(target: &Target) -> anyhow::Result<u64> {
    let service = target.processes.service.first().context("its process is known")?;
    resident_bytes(*service).context("memory is known on Linux only")
}
