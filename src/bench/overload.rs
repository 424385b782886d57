//! More than the service can do: requests come at twice the rate that it can answer, whether it keeps up or not.
//!
//! A service that takes on everything answers everybody late, and in the end nobody in time. One that turns some away at
//! once goes on answering the others. So what counts is the rate of *good* answers, beside the peak that the same service
//! reaches when nobody asks for more; both are measured in turns.

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::arguments::{ClientArguments, RunArguments};
use super::cores::Apart;
use super::figures::{Spread, ratios};
use super::load::Plan;
use super::measure::{Bench, Slice};
use super::pace::Pace;
use super::probe::{PATHS, Probe};
use super::progress::Progress;
use super::scenario::Scenario;
use super::target::{Target, with_target};
use super::verdict::Verdict;
use crate::base::shutdown::{Shutdown, StopRequests};

/// Requests come at so many times the peak.
pub const TIMES: f64 = 2.0;

/// How the overload is made.
#[derive(Args, Clone)]
pub(super) struct OverloadArguments {
    /// Connections of the overload: too few, and the client waits instead of the service
    #[arg(long, default_value_t = 2_048, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub overload_connections: u32,
    /// Connections of the closed loop that finds the peak
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub peak_connections: u32,
}

/// One scenario, overloaded.
#[derive(Debug, Serialize)]
pub struct Overload {
    pub scenario: Scenario,
    /// Cores that the client had to itself; none: it shared all of them.
    pub client_cores: Option<usize>,
    /// Of the service that was started for it; none: it was the run's.
    pub verdict: Option<Verdict>,
    /// Good answers a second in a closed loop.
    pub peak_per_second: Option<Spread>,
    /// Good answers a second under the overload, and what they are to the peak, pair by pair.
    pub good_per_second: Option<Spread>,
    pub to_peak: Option<Spread>,
    pub overloaded_per_second: Option<Spread>,
    /// Other answers that don't belong into the scenario, time-outs, broken connections.
    pub other_troubles: u64,
    pub probes: Vec<Probe>,
    pub peaks: Vec<Slice>,
    pub floods: Vec<Slice>,
}

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
    let binary = std::env::current_exe()?;
    let starting = Target::start("", &binary, &arguments.service_args, shutdown);
    let (pairs, how) = (arguments.rounds, &arguments.overloads);
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
    let (mut peaks, mut floods, mut probes) = (Vec::new(), Vec::new(), Vec::new());
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
        // A queue that nobody empties any more is not what is measured.
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

impl Overload {
    fn of(
        scenario: Scenario,
        peaks: Vec<Slice>,
        floods: Vec<Slice>,
        probes: Vec<Probe>,
        warm_up_seconds: f64,
    ) -> Self {
        let good = |slices: &[Slice]| -> Vec<f64> {
            slices.iter().map(|slice| slice.good_per_second).collect()
        };
        let (peak, flooded) = (good(&peaks), good(&floods));
        let overloaded = floods.iter().map(|slice| {
            let said = slice.endings.iter().filter(|ending| ending.code == "overloaded");
            let said: u64 = said.map(|ending| ending.count).sum();
            said as f64 / (slice.seconds + warm_up_seconds)
        });
        let endings = floods.iter().flat_map(|slice| &slice.endings);
        let troubles =
            endings.filter(|ending| !scenario.expects(ending) && ending.code != "overloaded");
        Self {
            scenario,
            client_cores: None,
            verdict: None,
            to_peak: Spread::of(ratios(&peak, &flooded)),
            peak_per_second: Spread::of(peak),
            good_per_second: Spread::of(flooded),
            overloaded_per_second: Spread::of(overloaded),
            other_troubles: troubles.map(|ending| ending.count).sum(),
            probes,
            peaks,
            floods,
        }
    }
}
