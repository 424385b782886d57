//! `flash-sale-bench run`: one service, scenarios in turns, then latency at a constant rate, then the verdict.

use std::path::Path;

use super::rounds::{self, Beside, Figures};
use super::session::with_target;
use super::{binary, drain, overload};
use crate::arguments::RunArguments;
use crate::load::pace::Pace;
use crate::load::scenario::Scenario;
use crate::measure::bench::Bench;
use crate::measure::progress::Progress;
use crate::measure::slice::Slice;
use crate::measure::syncs::{self, SyncTimes};
use crate::report;
use crate::report::goals::GoalsDocument;
use crate::results::goals::GOALS;
use crate::results::levels::Level;
use crate::results::machine::Machine;
use crate::results::run::{RunReport, Summary};
use crate::service::target::Target;
use flash_sale::base::shutdown::{Shutdown, StopRequests};
use flash_sale::kit::open_files;

/// Latency is measured at this share of what the closed loop has found.
const HALF: f64 = 0.5;

/// Measures, prints, and writes what was asked for.
pub async fn run(arguments: RunArguments, stop_requests: &mut StopRequests) -> anyhow::Result<()> {
    arguments.validate()?;
    // Whatever can't be done is refused before anything starts.
    let goals = arguments.goals.as_deref().map(GoalsDocument::read).transpose()?;
    make_room_for_connections();
    let shutdown = Shutdown::default();
    let progress = Progress::new(seconds_of_load(&arguments));
    let mut bench = Bench::new(arguments.client.clone(), progress, shutdown.clone());
    bench.progress.say("starting the service");
    let opened = async {
        match &arguments.url {
            Some(url) => Target::at("", url, &arguments.stores).await,
            None => {
                let binary = binary::of_service(arguments.binary.as_deref())?;
                Target::start("", &binary, &arguments.service_args, &shutdown).await
            }
        }
    };
    let measured = with_target(&mut bench, opened, stop_requests, async |bench, target| {
        let mut beside = Beside::start(&arguments, &shutdown).await?;
        let measured = measure(&arguments, bench, target, &mut beside).await;
        let closed = beside.close().await;
        let measured = measured?;
        closed.map(|()| measured)
    });
    let mut report = measured.await?;
    drop(bench);
    if arguments.url.is_none() {
        for scenario in arguments.overloaded() {
            report
                .overload
                .push(overload::apart(&arguments, scenario, &shutdown, stop_requests).await?);
        }
    }
    if arguments.drain_orders() > 0 {
        let orders = arguments.drain_orders();
        let binary = binary::of_service(arguments.binary.as_deref())?;
        let plan = drain::Plan::new(orders, arguments.rounds, &arguments.service_args, binary);
        report.drain = Some(plan.run(shutdown, stop_requests).await?.1);
    }
    report.draw_up_budget();
    if arguments.is_everything() {
        report.goals = GOALS.iter().map(|goal| goal.reached(&report)).collect();
    }
    println!("{}", report::table::of_run(&report));
    write_files(&arguments, &report, goals)?;
    report.verdicts().try_for_each(|(_, verdict)| verdict.believe())
}

/// Writes the files that were asked for. Documents are left as they are by a run that is void.
fn write_files(
    arguments: &RunArguments,
    report: &RunReport,
    goals: Option<GoalsDocument>,
) -> anyhow::Result<()> {
    if let Some(file) = &arguments.json {
        std::fs::write(file, serde_json::to_string_pretty(report)?)?;
    }
    if report.verdicts().any(|(_, verdict)| verdict.believe().is_err()) {
        return Ok(());
    }
    if let Some(goals) = goals {
        goals.write(report)?;
    }
    Ok(())
}

/// Raises the limit on open files as far as the system allows; connections beyond it fail with a text of their own.
fn make_room_for_connections() {
    if let Err(error) = open_files::raise_limit() {
        tracing::debug!(%error, "the limit on open files could not be raised");
    }
}

fn seconds_of_load(arguments: &RunArguments) -> f64 {
    let client = &arguments.client;
    let scenarios = arguments.scenarios();
    let half = scenarios.iter().filter(|scenario| arguments.measures_half_load(**scenario)).count();
    let overloaded = arguments.url.as_ref().map_or(0, |_| arguments.overloaded().len());
    let beside = Level::ALL.len() * usize::from(arguments.is_everything());
    let in_rounds = scenarios.len() + half + beside + 2 * overloaded;
    let slices = in_rounds * arguments.rounds as usize;
    slices as f64 * (client.seconds + client.warm_up_seconds)
}

async fn measure(
    arguments: &RunArguments,
    bench: &mut Bench,
    target: &mut Target,
    beside: &mut Beside,
) -> anyhow::Result<RunReport> {
    let machine = Machine::look(target).await?;
    bench.calibrate(target).await?;
    let figures = rounds::measure(arguments, bench, target, beside).await?;
    let Figures { slices, levels, floor } = figures;
    let scenarios = arguments.scenarios();
    let summaries: Vec<Summary> =
        scenarios.iter().filter_map(|scenario| Summary::of(*scenario, &slices)).collect();
    let (half_load, syncs) = half_load(arguments, bench, target, &summaries).await?;
    let mut overload = Vec::new();
    if arguments.url.is_some() {
        for scenario in arguments.overloaded() {
            let pairs = arguments.rounds;
            let how = &arguments.overloads;
            overload.push(overload::measure(bench, target, scenario, pairs, how).await?);
        }
    }
    bench.progress.say("comparing Redis with Postgres");
    Ok(RunReport {
        machine: machine.after(slices.iter().chain(&half_load)),
        service_args: arguments.service_args.clone(),
        summaries,
        slices,
        levels,
        floor,
        syncs,
        half_load,
        overload,
        drain: None,
        budget: None,
        goals: Vec::new(),
        verdict: target.judge().await?,
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
    for summary in summaries.iter().filter(|summary| arguments.measures_half_load(summary.scenario))
    {
        let pace = Pace::Open { per_second: summary.requests_per_second.median * HALF };
        let folder = target.folder().filter(|_| summary.scenario == Scenario::Win);
        for _ in 0..arguments.rounds {
            let mut took = sync(bench, folder.as_deref()).await?;
            slices.push(bench.slice(target, summary.scenario, pace).await?);
            took.extend(sync(bench, folder.as_deref()).await?);
            all_syncs.extend(SyncTimes::of(took));
        }
    }
    Ok((slices, all_syncs))
}

async fn sync(bench: &Bench, folder: Option<&Path>) -> anyhow::Result<Vec<f64>> {
    let Some(folder) = folder else { return Ok(Vec::new()) };
    bench.progress.say("syncing a file");
    syncs::measure(folder).await
}
