//! `flash-sale-bench compare`: two services in turns, A-B-B-A, and the ratio of each pair.

use std::path::Path;

use anyhow::{anyhow, bail};

use crate::arguments::CompareArguments;
use crate::load::pace::Pace;
use crate::load::scenario::Scenario;
use crate::measure::bench::Bench;
use crate::measure::progress::Progress;
use crate::report;
use crate::results::compare::{CompareReport, Comparison};
use crate::results::machine::Machine;
use crate::service::target::Target;
use crate::service::verdict::Verdict;
use flash_sale::base::config::{InvalidConfig, StoreConfig};
use flash_sale::base::shutdown::{Shutdown, StopRequests};

/// Measures, prints, and writes what was asked for.
pub async fn run(
    arguments: CompareArguments,
    stop_requests: &mut StopRequests,
) -> anyhow::Result<()> {
    if arguments.scenario.contains(&Scenario::Bare) {
        let reason = "the bare route is the bench's own, and the same for both services: use `flash-sale-bench run`";
        return Err(InvalidConfig::new(reason).into());
    }
    if arguments.scenario.contains(&Scenario::Countdown) {
        let reason =
            "a countdown can't be compared: it measures one moment; use `flash-sale-bench run`";
        return Err(InvalidConfig::new(reason).into());
    }
    let shutdown = Shutdown::default();
    let client = &arguments.client;
    let slices = f64::from(2 * arguments.pairs) * arguments.scenario.len() as f64;
    let progress = Progress::new(slices * (client.seconds + client.warm_up_seconds));
    let mut bench = Bench::new(client.clone(), progress, shutdown.clone());
    bench.progress.say("starting both services");
    let a = &arguments.a;
    let b = &arguments.b;
    let opened = async {
        tokio::try_join!(
            open("A", a, &arguments.a_args, &arguments.stores, &shutdown),
            open("B", b, &arguments.b_args, &arguments.stores, &shutdown),
        )
    };
    let (mut a, mut b) = tokio::select! {
        opened = opened => opened?,
        signal = stop_requests.next() => bail!("{signal} before the services had started"),
    };
    let measured = tokio::select! {
        measured = measure(&arguments, &mut bench, &mut a, &mut b) => measured,
        signal = stop_requests.next() => Err(anyhow!("{signal} in the middle of the measurement")),
    };
    bench.progress.say("stopping both services");
    let closed = tokio::join!(a.close(), b.close());
    drop(bench);
    let report = measured?;
    closed.0.and(closed.1)?;
    println!("{}", report::table::of_comparison(&report));
    if let Some(file) = &arguments.json {
        std::fs::write(file, serde_json::to_string_pretty(&report)?)?;
    }
    report.verdicts.iter().try_for_each(Verdict::believe)
}

/// Opens a target. A URL is not judged, because `--redis-url` would not tell whose Redis it names.
async fn open(
    name: &str,
    target: &str,
    arguments: &str,
    stores: &StoreConfig,
    shutdown: &Shutdown,
) -> anyhow::Result<Target> {
    if target.contains("://") {
        let stores = StoreConfig { redis_url: None, database_url: None, ..stores.clone() };
        return Target::at(name, target, &stores).await;
    }
    Target::start(name, Path::new(target), arguments, shutdown).await
}

async fn measure(
    arguments: &CompareArguments,
    bench: &mut Bench,
    a: &mut Target,
    b: &mut Target,
) -> anyhow::Result<CompareReport> {
    let machine = Machine::look(a).await?;
    bench.calibrate(a).await?;
    bench.calibrate(b).await?;
    let mut comparisons = Vec::new();
    for scenario in &arguments.scenario {
        let mut of_a = Vec::new();
        let mut of_b = Vec::new();
        for pair in 0..arguments.pairs {
            if pair % 2 == 0 {
                of_a.push(bench.slice(a, *scenario, Pace::Closed).await?);
                of_b.push(bench.slice(b, *scenario, Pace::Closed).await?);
            } else {
                of_b.push(bench.slice(b, *scenario, Pace::Closed).await?);
                of_a.push(bench.slice(a, *scenario, Pace::Closed).await?);
            }
        }
        comparisons.push(Comparison::of(*scenario, of_a, of_b));
    }
    bench.progress.say("comparing Redis with Postgres");
    let described =
        |target: &str, arguments: &str| format!("{target} {arguments}").trim().to_owned();
    let slices = comparisons.iter().flat_map(|Comparison { a, b, .. }| a.iter().chain(b));
    Ok(CompareReport {
        machine: machine.after(slices),
        a: described(&arguments.a, &arguments.a_args),
        b: described(&arguments.b, &arguments.b_args),
        comparisons,
        verdicts: [a.judge().await?, b.judge().await?],
    })
}
