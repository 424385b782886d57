//! All figures of `flash-sale-bench drain`.

use std::time::Duration;

use serde::Serialize;

use super::machine::Machine;
use crate::figures::{Spread, ratios};
use crate::service::cpu::CpuTimes;
use crate::service::verdict::Verdict;

/// All figures of a drain, and their machine.
#[derive(Debug, Serialize)]
pub struct DrainReport {
    pub machine: Machine,
    pub service_args: String,
    pub drain: Drain,
}

/// All rounds.
#[derive(Debug, Serialize)]
pub struct Drain {
    pub rounds: Vec<Round>,
    /// The worker's rows per second / COPY's, round by round.
    pub to_copy: Option<Spread>,
    pub verdict: Verdict,
}

/// One backlog.
#[derive(Debug, Serialize)]
pub struct Round {
    pub orders: u64,
    /// From the first row to the last one.
    pub seconds: f64,
    pub rows_per_second: f64,
    /// CPU time of the worker, from its start; `service` is the worker's process.
    pub cpu_us_per_row: CpuTimes,
    pub copied: Option<Copied>,
    /// Growth of Redis's memory from before the first claim until all is written and trimmed, for each buyer.
    pub redis_bytes_per_buyer: Option<f64>,
}

/// The same rows by COPY.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Copied {
    pub per_second: f64,
    pub postgres_us_per_row: Option<f64>,
}

impl Round {
    pub fn of(
        orders: u64,
        took: Duration,
        cpu_us_per_row: CpuTimes,
        copied: Option<Copied>,
        bytes: Option<f64>,
    ) -> Self {
        let seconds = took.as_secs_f64();
        let redis_bytes_per_buyer = bytes.map(|bytes| bytes / orders as f64);
        let rows_per_second = orders as f64 / seconds;
        Self { orders, seconds, rows_per_second, cpu_us_per_row, copied, redis_bytes_per_buyer }
    }
}

impl Drain {
    pub fn of(rounds: Vec<Round>, verdict: Verdict) -> Self {
        let copied = |round: &Round| Some(round.copied?.per_second);
        let copied: Vec<f64> = rounds.iter().filter_map(copied).collect();
        let written: Vec<f64> = rounds.iter().map(|round| round.rows_per_second).collect();
        Self { to_copy: Spread::of(ratios(&copied, &written)), rounds, verdict }
    }

    /// This figure of all rounds.
    pub fn spread(&self, figure: impl Fn(&Round) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.rounds.iter().filter_map(figure))
    }
}
