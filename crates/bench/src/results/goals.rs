//! The goals: what a run should reach, and what it has reached.
//!
//! Each goal is a ratio within the run, or a figure that hardly depends on the machine. A ratio is taken round by round,
//! of slices that are neighbours in time, and the median counts.

use super::drain::Round;
use super::run::{Reached, RunReport};
use crate::figures::{Spread, ratios};
use crate::load::scenario::Scenario;
use crate::measure::cost::{Cost, RedisCost};
use crate::measure::slice::Slice;

/// One goal.
pub struct Goal {
    pub what: &'static str,
    pub aim: Aim,
    /// Unit of the figure and of the aim; empty for a ratio.
    pub unit: &'static str,
    /// The way to measure it, for a run that has not done so.
    pub how: &'static str,
    figures: fn(&RunReport) -> Vec<f64>,
}

/// The side of a bound that is good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aim {
    AtMost(f64),
    AtLeast(f64),
}

const WHOLE_RUN: &str = "leave out `--scenario`";
const ON_LINUX: &str = "leave out `--scenario`, on Linux";

/// All goals, in the order in which they are printed.
pub const GOALS: [Goal; 14] = [
    Goal {
        what: "CPU of a win (service, Redis, Postgres; synced and written) / floor",
        aim: Aim::AtMost(1.6),
        unit: "",
        how: ON_LINUX,
        figures: win_to_floor,
    },
    Goal {
        what: "requests/s, win / no-op",
        aim: Aim::AtLeast(0.45),
        unit: "",
        how: WHOLE_RUN,
        figures: |run| rates(run, Scenario::Win),
    },
    Goal {
        what: "service CPU of a win, worker included / of a no-op",
        aim: Aim::AtMost(1.5),
        unit: "",
        how: ON_LINUX,
        figures: |run| ratios(&service_us(run, Scenario::NoOp), &service_us(run, Scenario::Win)),
    },
    Goal {
        what: "service CPU of a no-op / CPU of a bare axum route",
        aim: Aim::AtMost(1.3),
        unit: "",
        how: ON_LINUX,
        figures: |run| ratios(&service_us(run, Scenario::Bare), &service_us(run, Scenario::NoOp)),
    },
    Goal {
        what: "requests/s, sold out / no-op",
        aim: Aim::AtLeast(0.97),
        unit: "",
        how: WHOLE_RUN,
        figures: |run| rates(run, Scenario::SoldOut),
    },
    Goal {
        what: "calls of Redis for 1,000 refusals",
        aim: Aim::AtMost(1.0),
        unit: "",
        how: WHOLE_RUN,
        figures: |run| redis(&run.of(Scenario::SoldOut), |cost| Some(cost.questions * 1e3)),
    },
    Goal {
        what: "requests/s, duplicate / no-op",
        aim: Aim::AtLeast(0.8),
        unit: "",
        how: WHOLE_RUN,
        figures: |run| rates(run, Scenario::Duplicate),
    },
    Goal {
        what: "log to Postgres, rows/s / raw COPY",
        aim: Aim::AtLeast(0.85),
        unit: "",
        how: "leave out `--drain-orders 0`",
        figures: |run| drained(run, |round| Some(round.rows_per_second / round.copied?.per_second)),
    },
    Goal {
        what: "202 to readable row, p99 at half load",
        aim: Aim::AtMost(40.0),
        unit: " ms",
        how: WHOLE_RUN,
        figures: |run| {
            let rows = half_load(run).filter_map(|slice| slice.time_to_row.as_ref());
            rows.map(|row| row.p99_ms).collect()
        },
    },
    Goal {
        what: "p99 of a win at half load / p99 of fdatasync",
        aim: Aim::AtMost(3.0),
        unit: "",
        how: WHOLE_RUN,
        figures: |run| {
            let wins = half_load(run).filter_map(|slice| slice.latency.as_ref());
            let wins: Vec<f64> = wins.map(|latency| latency.p99_ms).collect();
            let syncs: Vec<f64> = run.syncs.iter().map(|syncs| syncs.p99_ms).collect();
            ratios(&syncs, &wins)
        },
    },
    Goal {
        what: "goodput at twice the peak / peak",
        aim: Aim::AtLeast(0.95),
        unit: "",
        how: WHOLE_RUN,
        figures: |run| {
            let wins = run.overload.iter().filter(|overload| overload.scenario == Scenario::Win);
            let good = |slices: &[Slice]| -> Vec<f64> {
                slices.iter().map(|slice| slice.good_per_second).collect()
            };
            wins.flat_map(|wins| ratios(&good(&wins.peaks), &good(&wins.floods))).collect()
        },
    },
    Goal {
        what: "requests/s, win, `appendfsync always` / `everysec`",
        aim: Aim::AtLeast(0.85),
        unit: "",
        how: WHOLE_RUN,
        figures: |run| {
            let everysec: Vec<&Slice> = run.everysec.iter().collect();
            ratios(&per_second(&everysec), &per_second(&run.of(Scenario::Win)))
        },
    },
    Goal {
        what: "append-only file for a win, everything included",
        aim: Aim::AtMost(140.0),
        unit: " bytes",
        how: "repeat it: Redis has rewritten its file in each slice",
        figures: |run| redis(&run.of(Scenario::Win), |cost| cost.aof_bytes),
    },
    Goal {
        what: "memory of Redis for a buyer",
        aim: Aim::AtMost(24.0),
        unit: " bytes",
        how: "leave out `--drain-orders 0`",
        figures: |run| drained(run, |round| round.redis_bytes_per_buyer),
    },
];

impl Goal {
    /// The goal with its figure in this run.
    pub fn reached(&self, run: &RunReport) -> Reached {
        let figure = Spread::of((self.figures)(run));
        Reached {
            what: self.what,
            aim: self.aim(),
            unit: self.unit,
            met: figure.map(|figure| self.aim.is_met(figure.median)),
            figure,
            how: self.how,
        }
    }

    /// The aim as it is printed.
    pub fn aim(&self) -> String {
        let Self { aim, unit, .. } = self;
        match aim {
            Aim::AtMost(bound) => format!("<= {bound}{unit}"),
            Aim::AtLeast(bound) => format!(">= {bound}{unit}"),
        }
    }
}

impl Aim {
    fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtMost(bound) => figure <= bound,
            Self::AtLeast(bound) => figure >= bound,
        }
    }
}

/// A figure of each backlog.
fn drained(run: &RunReport, figure: fn(&Round) -> Option<f64>) -> Vec<f64> {
    run.drain.iter().flat_map(|drain| &drain.rounds).filter_map(figure).collect()
}

fn half_load(run: &RunReport) -> impl Iterator<Item = &Slice> {
    run.half_load.iter().filter(|slice| slice.scenario == Scenario::Win)
}

fn per_second(slices: &[&Slice]) -> Vec<f64> {
    slices.iter().map(|slice| slice.requests_per_second).collect()
}

/// Requests a second of this scenario / of the no-op route, round by round.
fn rates(run: &RunReport, scenario: Scenario) -> Vec<f64> {
    let of = |scenario| per_second(&run.of(scenario));
    ratios(&of(Scenario::NoOp), &of(scenario))
}

fn costs<'a>(slices: &'a [&Slice]) -> impl Iterator<Item = &'a Cost> {
    slices.iter().filter_map(|slice| slice.cost.as_ref())
}

/// Microseconds of the service for a request, its writer included.
fn service_us(run: &RunReport, scenario: Scenario) -> Vec<f64> {
    let slices = run.of(scenario);
    costs(&slices).filter_map(|cost| cost.cpu_us.service).collect()
}

fn redis(slices: &[&Slice], figure: fn(&RedisCost) -> Option<f64>) -> Vec<f64> {
    costs(slices).filter_map(|cost| figure(cost.redis.as_ref()?)).collect()
}

/// The floor: a no-op request, the script's minimum, and COPY of the row.
fn win_to_floor(run: &RunReport) -> Vec<f64> {
    let copy = Spread::of(drained(run, |round| round.copied?.postgres_us_per_row));
    let Some(copy) = copy else { return Vec::new() };
    let no_op = service_us(run, Scenario::NoOp);
    let floors = no_op.iter().zip(&run.floor);
    let floors = floors.map(|(no_op, floor)| no_op + floor.redis_us_per_claim + copy.median);
    let wins = run.of(Scenario::Win);
    let wins: Vec<f64> = costs(&wins).filter_map(|cost| cost.cpu_us.measured()).collect();
    ratios(&floors.collect::<Vec<f64>>(), &wins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_met_on_its_good_side_and_on_the_line() {
        assert!(Aim::AtMost(1.6).is_met(1.6) && !Aim::AtMost(1.6).is_met(1.61));
        assert!(Aim::AtLeast(0.85).is_met(0.85) && !Aim::AtLeast(0.85).is_met(0.84));
        let memory = GOALS.iter().find(|goal| goal.what.starts_with("memory")).unwrap();
        assert_eq!(memory.aim(), "<= 24 bytes");
    }
}
