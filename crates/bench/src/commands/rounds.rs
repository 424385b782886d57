//! The rounds of a run: each has a slice of every scenario and what is measured beside wins, there and back again.

use anyhow::Context;
use flash_sale::base::shutdown::Shutdown;

use super::{everysec, session};
use crate::arguments::RunArguments;
use crate::figures::say;
use crate::load::connection::Address;
use crate::load::pace::Pace;
use crate::load::scenario::Scenario;
use crate::measure::bench::Bench;
use crate::measure::floor::{self, Floor};
use crate::measure::slice::Slice;
use crate::service::target::Target;

/// A step of a round.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    Slice(Scenario),
    /// Wins without a sync before each answer.
    Everysec,
    /// The least that Redis could do for a win.
    Floor,
}

/// Processes that are measured beside the service, in turns with it.
#[derive(Default)]
pub struct Beside {
    bare_route: Option<Target>,
    /// Where wins without syncs are asked for.
    everysec: Option<Address>,
}

/// The figures of all rounds.
#[derive(Default)]
pub struct Figures {
    pub slices: Vec<Slice>,
    pub everysec: Vec<Slice>,
    pub floor: Vec<Floor>,
}

impl Beside {
    /// Starts what the arguments ask for.
    pub async fn start(
        arguments: &RunArguments,
        target: &mut Target,
        shutdown: &Shutdown,
    ) -> anyhow::Result<Self> {
        let mut beside = Self::default();
        if arguments.is_everything() {
            let binary = session::binary(&arguments.service)?;
            let level = ["--durability", "memory"];
            beside.everysec = Some(target.start_door(&binary, &level, shutdown).await?);
        }
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
        let has_more = scenario == Scenario::Win && arguments.is_everything();
        steps.extend(has_more.then_some(Step::Floor));
        steps.push(Step::Slice(scenario));
        steps.extend(has_more.then_some(Step::Everysec));
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
            let pace = arguments.rate.map_or(Pace::Closed, |per_second| Pace::Open { per_second });
            let target = match &mut beside.bare_route {
                Some(bare) if scenario == Scenario::Bare => bare,
                _ => target,
            };
            figures.slices.push(bench.slice(target, scenario, pace).await?);
        }
        Step::Everysec => {
            let answering = beside.everysec.as_ref().context("it has been started")?;
            figures.everysec.push(everysec::slice(bench, target, answering).await?);
        }
        Step::Floor => {
            say("the least that Redis could do");
            figures.floor.push(floor::measure(target).await?);
        }
    }
    Ok(())
}
