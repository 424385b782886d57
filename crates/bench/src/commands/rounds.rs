//! The rounds of a run: each has a slice of every scenario and the ceilings beside it, there and back again.

use std::path::Path;

use anyhow::Context;

use super::binary;
use super::levels::Levels;
use crate::arguments::RunArguments;
use crate::load::pace::Pace;
use crate::load::scenario::Scenario;
use crate::measure::bench::Bench;
use crate::measure::floor::{self, Floor};
use crate::measure::script::{ScriptBench, ScriptCeiling};
use crate::measure::slice::Slice;
use crate::results::levels::LevelSlice;
use crate::service::target::Target;
use flash_sale::base::shutdown::Shutdown;

/// A step of a round.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    Slice(Scenario),
    /// Wins of the older binary.
    Before,
    /// Wins at other levels of durability.
    Levels,
    /// The least that Redis could do for a win.
    Floor,
}

/// Processes that are measured beside the service, in turns with it.
pub struct Beside {
    bare_route: Option<Target>,
    before: Option<Target>,
    /// Started when they are first measured.
    levels: Option<Levels>,
}

/// The figures of all rounds.
#[derive(Default)]
pub struct Figures {
    pub slices: Vec<Slice>,
    pub levels: Vec<LevelSlice>,
    pub before: Vec<Slice>,
    pub floor: Vec<Floor>,
    pub script: Vec<ScriptCeiling>,
}

impl Beside {
    /// Starts what the arguments ask for, and the older binary.
    pub async fn start(
        arguments: &RunArguments,
        before: Option<&Path>,
        shutdown: &Shutdown,
    ) -> anyhow::Result<Self> {
        let mut beside = Self { bare_route: None, before: None, levels: None };
        if arguments.scenarios().contains(&Scenario::Bare) {
            beside.bare_route = Some(Target::bare_route(shutdown).await?);
        }
        if let Some(before) = before {
            let target = Target::start("before", before, &arguments.service_args, shutdown);
            beside.before = Some(target.await.context("the binary of --before")?);
        }
        Ok(beside)
    }

    /// Ends all of it. The sales of the older binary are judged by their rows.
    pub async fn close(self) -> anyhow::Result<()> {
        let mut judged = Ok(());
        if let Some(before) = self.before {
            if let Some(judge) = &before.judge {
                judged = judge.judge_rows(&before.books).await;
            }
            judged = before.close().await.and(judged);
        }
        match self.bare_route {
            Some(bare) => bare.close().await.and(judged),
            None => judged,
        }
    }
}

/// Measures all rounds.
pub async fn measure(
    arguments: &RunArguments,
    bench: &mut Bench,
    target: &mut Target,
    beside: &mut Beside,
) -> anyhow::Result<Figures> {
    if steps(arguments).contains(&Step::Levels) {
        let binary = binary::of_service(arguments.binary.as_deref())?;
        beside.levels = Some(Levels::start(target, &binary, bench).await?);
    }
    let mut script = prepare_script(arguments, target).await?;
    let mut figures = Figures::default();
    for round in 0..arguments.rounds {
        let mut steps = steps(arguments);
        // There and back again: a drift hits every scenario alike.
        if round % 2 == 1 {
            steps.reverse();
        }
        for step in steps {
            take(step, arguments, bench, target, beside, &mut figures).await?;
        }
        if let Some(script) = &mut script {
            bench.progress.say("redis-benchmark calls the claim script");
            script.round(target).await?;
        }
    }
    figures.script = script.iter().flat_map(ScriptBench::ceilings).collect();
    Ok(figures)
}

/// The steps of a round. What is compared with wins stands beside them.
fn steps(arguments: &RunArguments) -> Vec<Step> {
    let mut steps = Vec::new();
    for scenario in arguments.scenarios() {
        let is_win = scenario == Scenario::Win;
        if is_win && arguments.is_everything() {
            steps.push(Step::Floor);
        }
        if is_win && arguments.before.is_some() {
            steps.push(Step::Before);
        }
        steps.push(Step::Slice(scenario));
        if is_win && arguments.is_everything() {
            steps.push(Step::Levels);
        }
    }
    steps
}

async fn take(
    step: Step,
    arguments: &RunArguments,
    bench: &mut Bench,
    target: &mut Target,
    beside: &mut Beside,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    match step {
        Step::Slice(scenario) => {
            let pace = match (scenario, arguments.rate) {
                (Scenario::Countdown, _) => Pace::Burst { requests: arguments.users.into() },
                (_, Some(per_second)) => Pace::Open { per_second },
                (_, None) => Pace::Closed,
            };
            let target = match &mut beside.bare_route {
                Some(bare) if scenario == Scenario::Bare => bare,
                _ => target,
            };
            figures.slices.push(bench.slice(target, scenario, pace).await?);
        }
        Step::Before => {
            let before = beside.before.as_mut().context("the older binary has been started")?;
            figures.before.push(bench.slice(before, Scenario::Win, Pace::Closed).await?);
        }
        Step::Levels => {
            let levels = beside.levels.as_ref().context("they are started before the rounds")?;
            figures.levels.extend(levels.round(bench, target).await?);
        }
        Step::Floor => {
            bench.progress.say("the least that Redis could do");
            figures.floor.push(floor::measure(target).await?);
        }
    }
    Ok(())
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
