//! `flash-sale-bench run`: one service, scenarios in turns, then latency at a constant rate, then the verdict.

use flash_sale::base::shutdown::{Shutdown, StopRequests};
use flash_sale::kit::open_files;

use super::rounds::{self, Beside, Figures};
use super::session::{self, with_target};
use super::{drain, overload};
use crate::arguments::RunArguments;
use crate::figures::say;
use crate::load::pace::Pace;
use crate::load::scenario::Scenario;
use crate::measure::bench::Bench;
use crate::measure::slice::Slice;
use crate::measure::syncs::{self, SyncTimes};
use crate::report;
use crate::report::goals::GoalsDocument;
use crate::results::goals::GOALS;
use crate::results::machine::Machine;
use crate::results::run::{RunReport, Summary};
use crate::service::target::Target;

/// Latency is measured at this share of what the closed loop has found.
const HALF: f64 = 0.5;

/// Measures, prints, and writes what was asked for.
pub async fn run(arguments: RunArguments, stop_requests: &mut StopRequests) -> anyhow::Result<()> {
    arguments.validate()?;
    // Whatever can't be done is refused before anything starts.
    let goals = arguments.goals.as_deref().map(GoalsDocument::read).transpose()?;
    let binary = session::binary(&arguments.service)?;
    // Connections beyond the limit of the system fail with a text of their own.
    let _ = open_files::raise_limit();
    let shutdown = Shutdown::default();
    let service_args = &arguments.service.service_args;
    let mut bench = Bench::new(arguments.client.clone(), shutdown.clone());
    let starting = Target::start("", &binary, service_args, &shutdown);
    let measured = with_target(&mut bench, starting, stop_requests, async |bench, target| {
        let mut beside = Beside::start(&arguments, target, &shutdown).await?;
        let measured = measure(&arguments, bench, target, &mut beside).await;
        let closed = beside.close().await;
        let measured = measured?;
        closed.map(|()| measured)
    });
    let mut report = measured.await?;
    for scenario in arguments.overloaded() {
        report
            .overload
            .push(overload::apart(&arguments, scenario, &shutdown, stop_requests).await?);
    }
    if arguments.drain_orders() > 0 {
        let plan = drain::Plan {
            orders: arguments.drain_orders(),
            rounds: arguments.rounds,
            service_args: service_args.clone(),
            binary,
            beside_copy: true,
        };
        report.drain = Some(plan.run(shutdown, stop_requests).await?.1);
    }
    report.draw_up_budget();
    if arguments.is_everything() {
        report.goals = GOALS.iter().map(|goal| goal.reached(&report)).collect();
    }
    println!("{}", report::table::of_run(&report));
    session::write_json(arguments.service.json.as_ref(), &report)?;
    report.verdicts().try_for_each(|(_, verdict)| verdict.believe())?;
    // Documents are left as they are by a run that is void.
    goals.map_or(Ok(()), |goals| goals.write(&report))
}

async fn measure(
    arguments: &RunArguments,
    bench: &mut Bench,
    target: &mut Target,
    beside: &mut Beside,
) -> anyhow::Result<RunReport> {
    let machine = Machine::look(target).await?;
    bench.calibrate(target).await?;
    let Figures { slices, everysec, floor } =
        rounds::measure(arguments, bench, target, beside).await?;
    let scenarios = arguments.scenarios();
    let summaries: Vec<Summary> =
        scenarios.iter().filter_map(|scenario| Summary::of(*scenario, &slices)).collect();
    let (half_load, syncs) = half_load(arguments, bench, target, &summaries).await?;
    say("comparing Redis with Postgres");
    Ok(RunReport {
        machine,
        service_args: arguments.service.service_args.clone(),
        summaries,
        slices,
        everysec,
        floor,
        syncs,
        half_load,
        overload: Vec::new(),
        drain: None,
        budget: None,
        goals: Vec::new(),
        verdict: target.verdict().await?,
    })
}

/// Slices at half of what the closed loop has found; around each slice of wins, fdatasync by itself.
async fn half_load(
    arguments: &RunArguments,
    bench: &mut Bench,
    target: &mut Target,
    summaries: &[Summary],
) -> anyhow::Result<(Vec<Slice>, Vec<SyncTimes>)> {
    let mut slices = Vec::new();
    let mut all_syncs = Vec::new();
    let halved = summaries.iter().filter(|summary| arguments.measures_half_load(summary.scenario));
    for summary in halved {
        let pace = Pace::Open { per_second: summary.requests_per_second.median * HALF };
        let folder = target.folder().filter(|_| summary.scenario == Scenario::Win);
        for _ in 0..arguments.rounds {
            let before = syncs::measure(folder.clone()).await?;
            slices.push(bench.slice(target, summary.scenario, pace).await?);
            let after = syncs::measure(folder.clone()).await?;
            all_syncs.extend(SyncTimes::of([before, after].concat()));
        }
    }
    Ok((slices, all_syncs))
}
