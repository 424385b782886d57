//! All figures of `flash-sale-bench run`.

use serde::Serialize;

use super::budget::Budget;
use super::drain::Drain;
use super::levels::{Level, LevelSlice};
use super::machine::Machine;
use super::overload::Overload;
use super::reached::Reached;
use crate::figures::{Spread, ratios};
use crate::load::scenario::Scenario;
use crate::measure::cost::Cost;
use crate::measure::floor::Floor;
use crate::measure::slice::Slice;
use crate::measure::syncs::SyncTimes;
use crate::service::cpu::CpuTimes;
use crate::service::verdict::Verdict;

/// All figures of a run.
#[derive(Debug, Serialize)]
pub struct RunReport {
    pub machine: Machine,
    /// Arguments of the service beyond the defaults; none are known of one that ran already.
    pub service_args: String,
    pub summaries: Vec<Summary>,
    /// Every slice, in the order of measuring.
    pub slices: Vec<Slice>,
    /// Wins at other levels of durability, one slice of each in each round.
    pub levels: Vec<LevelSlice>,
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

impl RunReport {
    /// The slices of a scenario, in the order of the rounds.
    pub fn of(&self, scenario: Scenario) -> Vec<&Slice> {
        self.slices.iter().filter(|slice| slice.scenario == scenario).collect()
    }

    /// Wins at this level, in the order of the rounds.
    pub fn at(&self, level: Level) -> Vec<&Slice> {
        self.levels.iter().filter(|of| of.level == level).map(|of| &of.slice).collect()
    }

    /// Draws up the budget of a win.
    pub fn draw_up_budget(&mut self) {
        let costs = |slices: &[&Slice]| -> Vec<Cost> {
            slices.iter().filter_map(|slice| slice.cost.clone()).collect()
        };
        let wins = costs(&self.of(Scenario::Win));
        let everysec = costs(&self.at(Level::Memory));
        let commit = self.machine.commit.as_deref().unwrap_or("unknown");
        self.budget = Budget::of(commit, &wins, &everysec);
    }

    /// A verdict for each service that was measured, with what it was measured at.
    pub fn verdicts(&self) -> impl Iterator<Item = (&'static str, &Verdict)> {
        let overloaded = self.overload.iter().filter_map(|overload| overload.verdict.as_ref());
        let drained = self.drain.iter().map(|drain| &drain.verdict);
        std::iter::once(("Verdict", &self.verdict))
            .chain(overloaded.map(|verdict| ("Verdict of the overload", verdict)))
            .chain(drained.map(|verdict| ("Verdict of the drain", verdict)))
    }
}

impl Summary {
    pub fn of(scenario: Scenario, slices: &[Slice]) -> Option<Self> {
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

/// The mean CPU time over all requests of the slices.
fn mean_cpu<'a>(slices: impl Iterator<Item = &'a Slice> + Clone) -> CpuTimes {
    CpuTimes::mean(slices.map(|slice| (&slice.cpu_us_per_request, slice.requests)))
}
