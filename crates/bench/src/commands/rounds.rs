//! The rounds of a run: each has a slice of every scenario and the ceilings beside it, there and back again.

use anyhow::Context;

use super::binary;
use super::levels::Levels;
use crate::arguments::RunArguments;
use crate::load::pace::Pace;
use crate::load::scenario::Scenario;
use crate::measure::bench::Bench;
use crate::measure::floor::{self, Floor};
use crate::measure::slice::Slice;
use crate::results::levels::LevelSlice;
use crate::service::target::Target;
use flash_sale::base::shutdown::Shutdown;

/// A step of a round.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    Slice(Scenario),
    /// Wins at other levels of durability.
    Levels,
    /// The least that Redis could do for a win.
    Floor,
}

/// Processes that are measured beside the service, in turns with it.
pub struct Beside {
    bare_route: Option<Target>,
    /// Started when they are first measured.
    levels: Option<Levels>,
}

/// The figures of all rounds.
#[derive(Default)]
pub struct Figures {
    pub slices: Vec<Slice>,
    pub levels: Vec<LevelSlice>,
    pub floor: Vec<Floor>,
}

impl Beside {
    /// Starts what the arguments ask for.
    pub async fn start(arguments: &RunArguments, shutdown: &Shutdown) -> anyhow::Result<Self> {
        let mut beside = Self { bare_route: None, levels: None };
        if arguments.scenarios().contains(&Scenario::Bare) {
            beside.bare_route = Some(Target::bare_route(shutdown).await?);
        }
        Ok(beside)
    }

    /// Ends all of it.
    pub async fn close(self) -> anyhow::Result<()> {
        match self.bare_route {
            Some(bare) => bare.close().await,
            None => Ok(()),
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
    }
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
