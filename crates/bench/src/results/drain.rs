//! All figures of `flash-sale-bench drain`.

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
    /// Rows in one transaction, of the worker at most, of COPY always.
    pub batch_orders_max: u32,
    pub rounds: Vec<Round>,
    pub rows_per_second: Option<Spread>,
    pub copied_per_second: Option<Spread>,
    /// The worker's rows per second / COPY's, round by round.
    pub to_copy: Option<Spread>,
    pub redis_bytes_per_buyer: Option<Spread>,
    pub verdict: Verdict,
}

/// One backlog.
#[derive(Debug, Serialize)]
pub struct Round {
    pub orders: u64,
    /// From the first row to the last acknowledged entry.
    pub seconds: f64,
    pub rows_per_second: f64,
    /// CPU time of the worker, from its start; `service` is the worker's process.
    pub cpu_us_per_row: CpuTimes,
    pub copied_per_second: f64,
    pub copy_cpu_us_per_row: CpuTimes,
    /// Growth of Redis's memory from before the first claim until all is written and trimmed, for each buyer.
    pub redis_bytes_per_buyer: f64,
}

impl Drain {
    pub fn of(batch_orders_max: u32, rounds: Vec<Round>, verdict: Verdict) -> Self {
        let all = |figure: fn(&Round) -> f64| rounds.iter().map(figure).collect::<Vec<f64>>();
        let written = all(|round| round.rows_per_second);
        let copied = all(|round| round.copied_per_second);
        let bytes = all(|round| round.redis_bytes_per_buyer);
        Self {
            batch_orders_max,
            to_copy: Spread::of(ratios(&copied, &written)),
            rows_per_second: Spread::of(written),
            copied_per_second: Spread::of(copied),
            redis_bytes_per_buyer: Spread::of(bytes),
            rounds,
            verdict,
        }
    }
}
