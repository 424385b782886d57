//! `flash-sale bench run`: one service, scenarios in turns, then latency at a constant rate, then the verdict.

use serde::Serialize;

use super::arguments::RunArguments;
use super::cpu::CpuTimes;
use super::drain::{self, Drain};
use super::figures::{Spread, ratios};
use super::machine::Machine;
use super::measure::{Bench, Slice};
use super::overload::{self, Overload};
use super::pace::Pace;
use super::progress::Progress;
use super::report;
use super::scenario::Scenario;
use super::script::{ScriptBench, ScriptCeiling};
use super::target::{Target, with_target};
use super::verdict::Verdict;
use crate::base::config::InvalidConfig;
use crate::base::shutdown::{Shutdown, StopRequests};
use crate::kit::open_files;

/// Latency is measured at this share of what the closed loop has found.
const HALF: f64 = 0.5;

/// All figures of a run.
#[derive(Debug, Serialize)]
pub struct RunReport {
    pub machine: Machine,
    /// Arguments of the service beyond the defaults; none are known of one that ran already.
    pub service_args: String,
    pub summaries: Vec<Summary>,
    /// Every slice, in the order of measuring.
    pub slices: Vec<Slice>,
    /// Open loop at half of the saturation.
    pub half_load: Vec<Slice>,
    /// Twice as many requests as can be answered.
    pub overload: Vec<Overload>,
    /// The claim script by itself; none where `redis-benchmark` isn't installed or nobody asked.
    pub script: Vec<ScriptCeiling>,
    /// How fast a backlog becomes rows, on servers of its own.
    pub drain: Option<Drain>,
    pub verdict: Verdict,
}

/// The slices of one scenario.
#[derive(Debug, Serialize)]
pub struct Summary {
    pub scenario: Scenario,
    pub requests_per_second: Spread,
    /// Round by round, against the no-op route.
    pub throughput_to_no_op: Option<Spread>,
    pub service_cpu_to_no_op: Option<Spread>,
    /// Over all slices.
    pub cpu_us_per_request: CpuTimes,
    /// Answers that don't belong into the scenario: failures, time-outs, `overloaded`.
    pub troubles: u64,
}

/// Measures, prints, and writes what was asked for.
pub async fn run(arguments: RunArguments, stop_requests: &mut StopRequests) -> anyhow::Result<()> {
    if arguments.rate.is_some() && arguments.scenarios().contains(&Scenario::Countdown) {
        let reason = "--rate and the countdown exclude each other: everybody comes at once there";
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
                let binary = std::env::current_exe()?;
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
        let plan = drain::Plan::new(orders, arguments.rounds, &arguments.service_args);
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

impl RunReport {
    /// A verdict for each service that was measured, with what it was measured at.
    pub fn verdicts(&self) -> impl Iterator<Item = (&'static str, &Verdict)> {
        let overloaded = self.overload.iter().filter_map(|overload| overload.verdict.as_ref());
        let drained = self.drain.iter().map(|drain| &drain.verdict);
        std::iter::once(("Verdict", &self.verdict))
            .chain(overloaded.map(|verdict| ("Verdict of the overload", verdict)))
            .chain(drained.map(|verdict| ("Verdict of the drain", verdict)))
    }
}

/// As far as the system lets us; connections that are too many will say so themselves.
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
        // There and back again: what drifts meanwhile hits every scenario alike.
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
            let (pairs, how) = (arguments.rounds, &arguments.overloads);
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

impl Summary {
    fn of(scenario: Scenario, slices: &[Slice]) -> Option<Self> {
        let of = |scenario| slices.iter().filter(move |slice| slice.scenario == scenario);
        let rates = |scenario| of(scenario).map(|slice| slice.requests_per_second).collect();
        let cpu = |scenario| {
            of(scenario).filter_map(|slice| slice.cpu_us_per_request.service).collect::<Vec<f64>>()
        };
        let (own, no_op): (Vec<f64>, Vec<f64>) = (rates(scenario), rates(Scenario::NoOp));
        let troubles = of(scenario).flat_map(|slice| &slice.endings);
        let troubles = troubles.filter(|ending| !scenario.expects(ending));
        Some(Self {
            scenario,
            throughput_to_no_op: Spread::of(ratios(&no_op, &own)),
            service_cpu_to_no_op: Spread::of(ratios(&cpu(Scenario::NoOp), &cpu(scenario))),
            requests_per_second: Spread::of(own)?,
            cpu_us_per_request: mean_cpu(of(scenario)),
            troubles: troubles.map(|ending| ending.count).sum::<u64>()
                + of(scenario).map(|slice| slice.never_sent).sum::<u64>(),
        })
    }
}

/// Each request counts as much as any other.
fn mean_cpu<'a>(slices: impl Iterator<Item = &'a Slice> + Clone) -> CpuTimes {
    let requests: u64 = slices.clone().map(|slice| slice.requests).sum();
    let mean = |of: fn(&CpuTimes) -> Option<f64>| {
        let used = slices
            .clone()
            .map(|slice| of(&slice.cpu_us_per_request).map(|each| each * slice.requests as f64));
        Some(used.sum::<Option<f64>>()? / requests.max(1) as f64)
    };
    CpuTimes {
        service: mean(|cpu| cpu.service),
        redis: mean(|cpu| cpu.redis),
        postgres: mean(|cpu| cpu.postgres),
        client: mean(|cpu| cpu.client),
    }
}
