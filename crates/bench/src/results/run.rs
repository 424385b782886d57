//! All figures of `flash-sale-bench run`.

use serde::Serialize;

use super::budget::Budget;
use super::drain::Drain;
use super::machine::Machine;
use super::overload::Overload;
use crate::figures::{Spread, ratios};
use crate::load::scenario::Scenario;
use crate::measure::floor::Floor;
use crate::measure::slice::{Slice, mean_cpu};
use crate::measure::syncs::SyncTimes;
use crate::service::cpu::CpuTimes;
use crate::service::verdict::Verdict;

/// All figures of a run.
#[derive(Debug, Serialize)]
pub struct RunReport {
    pub machine: Machine,
    /// Arguments of the service beyond the defaults.
    pub service_args: String,
    pub summaries: Vec<Summary>,
    /// Every slice, in the order of measuring.
    pub slices: Vec<Slice>,
    /// Wins without a sync before each answer, one slice in each round.
    pub everysec: Vec<Slice>,
    /// The least that Redis could do for a win, round by round.
    pub floor: Vec<Floor>,
    /// fdatasync around each slice of wins at half load.
    pub syncs: Vec<SyncTimes>,
    /// Open loop at half of the saturation.
    pub half_load: Vec<Slice>,
    /// Twice as many requests as can be answered.
    pub overload: Vec<Overload>,
    /// The drain of a backlog, on servers of its own.
    pub drain: Option<Drain>,
    /// Parts of a win; none without CPU times.
    pub budget: Option<Budget>,
    /// The goals; none unless everything was measured.
    pub goals: Vec<Reached>,
    pub verdict: Verdict,
}

/// A goal and its figure in a run.
#[derive(Clone, Debug, Serialize)]
pub struct Reached {
    pub what: &'static str,
    /// As it is printed: bound and unit.
    pub aim: String,
    pub unit: &'static str,
    pub figure: Option<Spread>,
    /// Whether the median is on the good side; none if there is no figure.
    pub met: Option<bool>,
    #[serde(skip)]
    pub how: &'static str,
}

/// The slices of one scenario.
#[derive(Debug, Serialize)]
pub struct Summary {
    pub scenario: Scenario,
    pub requests_per_second: Spread,
    /// Round by round, against the no-op route.
    pub throughput_to_no_op: Option<Spread>,
    /// Over all slices, until all that was sold is written.
    pub cpu_us_per_request: CpuTimes,
    /// Answers that don't belong into the scenario: failures, time-outs, `overloaded`.
    pub troubles: u64,
}

impl RunReport {
    /// The slices of a scenario, in the order of the rounds.
    pub fn of(&self, scenario: Scenario) -> Vec<&Slice> {
        self.slices.iter().filter(|slice| slice.scenario == scenario).collect()
    }

    /// Draws up the budget of a win.
    pub fn draw_up_budget(&mut self) {
        let commit = self.machine.commit.as_deref().unwrap_or("unknown");
        self.budget = Budget::of(commit, &self.of(Scenario::Win), &self.everysec);
    }

    /// A verdict for each service that was measured, with what it was measured at.
    pub fn verdicts(&self) -> impl Iterator<Item = (&'static str, &Verdict)> {
        let overloaded = self.overload.iter().map(|overload| &overload.verdict);
        let drained = self.drain.iter().map(|drain| &drain.verdict);
        std::iter::once(("Verdict", &self.verdict))
            .chain(overloaded.map(|verdict| ("Verdict of the overload", verdict)))
            .chain(drained.map(|verdict| ("Verdict of the drain", verdict)))
    }
}

impl Summary {
    pub fn of(scenario: Scenario, slices: &[Slice]) -> Option<Self> {
        let of = |scenario| slices.iter().filter(move |slice| slice.scenario == scenario);
        let rates =
            |scenario| of(scenario).map(|slice| slice.requests_per_second).collect::<Vec<f64>>();
        let troubles = of(scenario).flat_map(|slice| &slice.endings);
        let troubles = troubles.filter(|ending| !scenario.expects(ending));
        Some(Self {
            scenario,
            throughput_to_no_op: Spread::of(ratios(&rates(Scenario::NoOp), &rates(scenario))),
            requests_per_second: Spread::of(rates(scenario))?,
            cpu_us_per_request: mean_cpu(of(scenario)),
            troubles: troubles.map(|ending| ending.count).sum::<u64>()
                + of(scenario).map(|slice| slice.never_sent).sum::<u64>(),
        })
    }
}
