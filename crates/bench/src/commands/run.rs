//! `flash-sale-bench run`: one service, scenarios in turns, then latency at a constant rate, then the verdict.

use super::session::with_target;
use super::{binary, drain, overload};
use crate::arguments::RunArguments;
use crate::load::pace::Pace;
use crate::load::scenario::Scenario;
use crate::measure::bench::Bench;
use crate::measure::progress::Progress;
use crate::measure::script::ScriptBench;
use crate::report;
use crate::results::machine::Machine;
use crate::results::run::{RunReport, Summary};
use crate::service::target::Target;
use flash_sale::base::config::InvalidConfig;
use flash_sale::base::shutdown::{Shutdown, StopRequests};
use flash_sale::kit::open_files;

/// Latency is measured at this share of what the closed loop has found.
const HALF: f64 = 0.5;

/// Measures, prints, and writes what was asked for.
pub async fn run(arguments: RunArguments, stop_requests: &mut StopRequests) -> anyhow::Result<()> {
    if arguments.rate.is_some() && arguments.scenarios().contains(&Scenario::Countdown) {
        let reason = "--rate and the countdown exclude each other: all users come at once there";
        return Err(InvalidConfig::new(reason).into());
    }
    if arguments.url.is_some() && (arguments.script_calls() > 0 || arguments.drain_orders() > 0) {
        let reason = "--script-calls and --drain-orders need servers of our own: leave out --url";
        return Err(InvalidConfig::new(reason).into());
    }
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
        measure(&arguments, bench, target).await
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
    println!("{}", report::table::of_run(&report));
    if let Some(file) = &arguments.json {
        std::fs::write(file, serde_json::to_string_pretty(&report)?)?;
    }
    if let Some(folder) = &arguments.report {
        report::html::of_run(&report, folder)?;
    }
    report.verdicts().try_for_each(|(_, verdict)| verdict.believe())
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
    let in_rounds = scenarios.len() + 2 * overloaded;
    let slices = in_rounds * arguments.rounds as usize + half;
    slices as f64 * (client.seconds + client.warm_up_seconds)
}

async fn measure(
    arguments: &RunArguments,
    bench: &mut Bench,
    target: &mut Target,
) -> anyhow::Result<RunReport> {
    let machine = Machine::look(target).await?;
    bench.calibrate(target).await?;
    let scenarios = arguments.scenarios();
    let mut script = prepare_script(arguments, target).await?;
    let mut slices = Vec::new();
    for round in 0..arguments.rounds {
        let mut in_turn = scenarios.clone();
        // There and back again: a drift hits every scenario alike.
        if round % 2 == 1 {
            in_turn.reverse();
        }
        for scenario in in_turn {
            let pace = match (scenario, arguments.rate) {
                (Scenario::Countdown, _) => Pace::Burst { requests: arguments.users.into() },
                (_, Some(per_second)) => Pace::Open { per_second },
                (_, None) => Pace::Closed,
            };
            slices.push(bench.slice(target, scenario, pace).await?);
        }
        if let Some(script) = &mut script {
            bench.progress.say("redis-benchmark calls the claim script");
            script.round(target).await?;
        }
    }
    let summaries: Vec<Summary> =
        scenarios.iter().filter_map(|scenario| Summary::of(*scenario, &slices)).collect();
    let mut half_load = Vec::new();
    for summary in summaries.iter().filter(|summary| arguments.measures_half_load(summary.scenario))
    {
        let per_second = summary.requests_per_second.median * HALF;
        half_load.push(bench.slice(target, summary.scenario, Pace::Open { per_second }).await?);
    }
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
        half_load,
        overload,
        script: script.iter().flat_map(ScriptBench::ceilings).collect(),
        drain: None,
        verdict: target.judge().await?,
    })
}

async fn prepare_script(
    arguments: &RunArguments,
    target: &mut Target,
) -> anyhow::Result<Option<ScriptBench>> {
    let calls = arguments.script_calls();
    if calls == 0 {
        return Ok(None);
    }
    let script = ScriptBench::prepare(target, calls, arguments.client.connections).await?;
    if script.is_none() {
        eprintln!(
            "redis-benchmark is not installed (package redis-tools): the claim script is not measured by itself"
        );
    }
    Ok(script)
}
