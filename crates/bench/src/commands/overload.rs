//! Overload: requests come at twice the rate that the service can answer, whether it keeps up or not.
//!
//! A service that accepts all requests answers all of them late, and in the end none in time. One that refuses some at
//! once goes on answering the others. So what counts is the rate of *good* answers, beside the peak that the same service
//! reaches without further requests; both are measured in turns.

use anyhow::Context;
use flash_sale::base::shutdown::{Shutdown, StopRequests};

use super::session::{self, with_target};
use crate::arguments::{ClientArguments, OverloadArguments, RunArguments};
use crate::cores::Apart;
use crate::load::pace::Pace;
use crate::load::scenario::Scenario;
use crate::load::sending::Plan;
use crate::measure::bench::Bench;
use crate::measure::slice::Slice;
use crate::results::overload::{Overload, TIMES};
use crate::service::target::Target;

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
    let mut bench = Bench::new(client, shutdown.clone());
    let binary = session::binary(&arguments.service)?;
    let starting = Target::start("overload", &binary, &arguments.service.service_args, shutdown);
    with_target(&mut bench, starting, stop_requests, async |bench, target| {
        if let Some(apart) = &apart {
            apart.leave_it_alone();
        }
        bench.calibrate(target).await?;
        let (peaks, floods) = measure(bench, target, scenario, arguments).await?;
        let verdict = target.verdict().await?;
        let client_cores = apart.as_ref().map(|apart| apart.client_cores);
        Ok(Overload::of(scenario, client_cores, peaks, floods, verdict))
    })
    .await
}

/// Peak and overload in turns, there and back again.
async fn measure(
    bench: &mut Bench,
    target: &mut Target,
    scenario: Scenario,
    arguments: &RunArguments,
) -> anyhow::Result<(Vec<Slice>, Vec<Slice>)> {
    let connections = bench.client.connections;
    let mut peaks = Vec::new();
    let mut floods = Vec::new();
    let mut rate = None;
    for pair in 0..arguments.rounds {
        if pair % 2 == 1 {
            floods.push(flood(bench, target, scenario, rate, &arguments.overloads).await?);
        }
        bench.client.connections = arguments.overloads.peak_connections;
        let peak = bench.slice(target, scenario, Pace::Closed).await?;
        bench.client.connections = connections;
        // The first one decides: a rate that changes could not be compared with itself.
        rate.get_or_insert(TIMES * peak.good_per_second);
        peaks.push(peak);
        if pair % 2 == 0 {
            floods.push(flood(bench, target, scenario, rate, &arguments.overloads).await?);
        }
    }
    Ok((peaks, floods))
}

async fn flood(
    bench: &mut Bench,
    target: &mut Target,
    scenario: Scenario,
    rate: Option<f64>,
    arguments: &OverloadArguments,
) -> anyhow::Result<Slice> {
    let pace = Pace::Open { per_second: rate.context("the peak comes first")? };
    let plan = Plan {
        connections: arguments.overload_connections as usize,
        // A queue that is not emptied any more is not measured.
        late: std::time::Duration::ZERO,
        ..bench.plan(pace, bench.client.measured())
    };
    bench.planned(target, scenario, plan).await
}
