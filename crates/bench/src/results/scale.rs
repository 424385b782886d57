//! All figures of `flash-sale-bench scale`.

use serde::Serialize;

use super::machine::Machine;
use crate::figures::Spread;
use crate::measure::slice::Slice;
use crate::service::cpu::CpuTimes;
use crate::service::verdict::Verdict;

/// Wins over lanes and processes.
#[derive(Debug, Serialize)]
pub struct ScaleReport {
    pub machine: Machine,
    pub settings: Vec<Setting>,
    /// One for each number of lanes.
    pub verdicts: Vec<Verdict>,
}

/// Some lanes, and some processes that answer.
#[derive(Debug, Serialize)]
pub struct Setting {
    pub lanes: u32,
    /// Processes that the load goes to, each on a core of its own as far as there are cores.
    pub processes: usize,
    pub wins_per_second: Option<Spread>,
    /// Over all slices, until everything is written.
    pub cpu_us_per_win: CpuTimes,
    pub slices: Vec<Slice>,
}

impl Setting {
    pub fn of(lanes: u32, processes: usize, slices: Vec<Slice>) -> Self {
        let costs = slices.iter().filter_map(|slice| slice.cost.as_ref());
        Self {
            lanes,
            processes,
            wins_per_second: Spread::of(slices.iter().map(|slice| slice.good_per_second)),
            cpu_us_per_win: CpuTimes::mean(costs.map(|cost| (&cost.cpu_us, cost.requests))),
            slices,
        }
    }
}
