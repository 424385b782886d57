//! Overload: requests come at twice the rate that the service can answer, whether it keeps up or not.
//!
//! A service that accepts all requests answers all of them late, and in the end none in time. One that refuses some at
//! once goes on answering the others. So what counts is the rate of *good* answers, beside the peak that the same service
//! reaches without further requests; both are measured in turns.

use anyhow::Context;
use tokio_util::sync::CancellationToken;

use super::binary;
use super::session::with_target;
use crate::arguments::OverloadArguments;
use crate::arguments::RunArguments;
use crate::arguments::client::ClientArguments;
use crate::cores::Apart;
use crate::load::pace::Pace;
use crate::load::scenario::Scenario;
use crate::load::sending::Plan;
use crate::measure::bench::Bench;
use crate::measure::probe::{PATHS, Probe};
use crate::measure::progress::Progress;
use crate::measure::slice::Slice;
use crate::results::overload::{Overload, TIMES};
use crate::service::target::Target;
use flash_sale::base::shutdown::{Shutdown, StopRequests};

/// Overloads a service that is started for it, and leaves it alone on its cores.
pub async fn apart(
    arguments: &RunArguments,
    scenario: Scenario,
    shutdown: &Shutdown,
    stop_requests: &mut StopRequests,
) -> anyhow::Result<Overload> {
    // Counted once: how many there are looks different from the cores of one side.
    let threads = arguments.client.threads();
    let client =
        ClientArguments { threads: Some(u32::try_from(threads)?), ..arguments.client.clone() };
    let apart = Apart::begin(threads);
    let slices = 2.0 * f64::from(arguments.rounds);
    let progress = Progress::new(slices * (client.seconds + client.warm_up_seconds));
    let mut bench = Bench::new(client, progress, shutdown.clone());
    bench.progress.say("starting a service to overload");
    let binary = binary::of_service(arguments.binary.as_deref())?;
    let starting = Target::start("", &binary, &arguments.service_args, shutdown);
    let pairs = arguments.rounds;
    let how = &arguments.overloads;
    let measured = with_target(&mut bench, starting, stop_requests, async |bench, target| {
        if let Some(apart) = &apart {
            apart.leave_it_alone();
        }
        bench.calibrate(target).await?;
        let measured = measure(bench, target, scenario, pairs, how).await?;
        Ok(Overload { verdict: Some(target.judge().await?), ..measured })
    });
    let measured = measured.await?;
    Ok(Overload { client_cores: apart.map(|apart| apart.client_cores), ..measured })
}

/// Peak and overload in turns, there and back again.
pub async fn measure(
    bench: &mut Bench,
    target: &mut Target,
    scenario: Scenario,
    pairs: u32,
    arguments: &OverloadArguments,
) -> anyhow::Result<Overload> {
    let connections = bench.client.connections;
    let mut peaks = Vec::new();
    let mut floods = Vec::new();
    let mut probes = Vec::new();
    let mut rate = None;
    for pair in 0..pairs {
        if pair % 2 == 1 {
            floods.push(flood(bench, target, scenario, rate, arguments, &mut probes).await?);
        }
        bench.client.connections = arguments.peak_connections;
        let peak = bench.slice(target, scenario, Pace::Closed).await?;
        bench.client.connections = connections;
        // The first one decides: a rate that changes could not be compared with itself.
        rate.get_or_insert(TIMES * peak.good_per_second);
        peaks.push(peak);
        if pair % 2 == 0 {
            floods.push(flood(bench, target, scenario, rate, arguments, &mut probes).await?);
        }
    }
    Ok(Overload::of(scenario, peaks, floods, probes, bench.client.warm_up().as_secs_f64()))
}

async fn flood(
    bench: &mut Bench,
    target: &mut Target,
    scenario: Scenario,
    rate: Option<f64>,
    arguments: &OverloadArguments,
    probes: &mut Vec<Probe>,
) -> anyhow::Result<Slice> {
    let pace = Pace::Open { per_second: rate.context("the peak comes first")? };
    let plan = Plan {
        connections: arguments.overload_connections as usize,
        // A queue that is not emptied any more is not measured.
        late: std::time::Duration::ZERO,
        ..bench.plan(pace, bench.client.measured())
    };
    let stop = CancellationToken::new();
    // Dropped with this function, whatever happens to the slice.
    let _stops = stop.clone().drop_guard();
    let asking: Vec<_> = PATHS
        .into_iter()
        .map(|path| bench.shutdown.spawn(Probe::run(target.address.clone(), path, stop.clone())))
        .collect();
    let slice = bench.planned(target, scenario, plan).await?;
    stop.cancel();
    for asking in asking {
        let probe = asking.await?;
        match probes.iter_mut().find(|known| known.path == probe.path) {
            Some(known) => known.add(&probe),
            None => probes.push(probe),
        }
    }
    Ok(slice)
}
