//! All figures of `flash-sale-bench run`.

use serde::Serialize;

use super::drain::Drain;
use super::machine::Machine;
use super::overload::Overload;
use crate::figures::{Spread, ratios};
use crate::load::scenario::Scenario;
use crate::measure::script::ScriptCeiling;
use crate::measure::slice::Slice;
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
    /// Open loop at half of the saturation.
    pub half_load: Vec<Slice>,
    /// Twice as many requests as can be answered.
    pub overload: Vec<Overload>,
    /// The claim script by itself; empty where `redis-benchmark` isn't installed, or without `--script-calls`.
    pub script: Vec<ScriptCeiling>,
    /// The drain of a backlog, on servers of its own.
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
