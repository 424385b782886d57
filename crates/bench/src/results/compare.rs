//! All figures of `flash-sale-bench compare`.

use serde::Serialize;

use super::machine::Machine;
use crate::figures::{Spread, ratios};
use crate::load::scenario::Scenario;
use crate::measure::cost::Cost;
use crate::measure::slice::Slice;
use crate::service::verdict::Verdict;

/// All figures of a comparison.
#[derive(Debug, Serialize)]
pub struct CompareReport {
    pub machine: Machine,
    /// First target: binary, and further arguments.
    pub a: String,
    pub b: String,
    pub comparisons: Vec<Comparison>,
    /// Rows a second of a backlog, B / A of each pair.
    pub drain: Option<Spread>,
    /// Of A and B, and then of each backlog.
    pub verdicts: Vec<Verdict>,
}

/// One scenario. Every ratio is B / A of one pair of neighbouring slices; costs are those of a request until all that was
/// sold is written.
#[derive(Debug, Serialize)]
pub struct Comparison {
    pub scenario: Scenario,
    pub throughput: Option<Spread>,
    pub cpu: Option<Spread>,
    pub service_cpu: Option<Spread>,
    pub redis_cpu: Option<Spread>,
    pub postgres_cpu: Option<Spread>,
    pub aof_bytes: Option<Spread>,
    pub a: Vec<Slice>,
    pub b: Vec<Slice>,
}

impl CompareReport {
    /// Notes how fast A and B wrote their backlogs.
    pub fn drain_ratios(&mut self, a: &[f64], b: &[f64]) {
        self.drain = Spread::of(ratios(a, b));
    }
}

impl Comparison {
    pub fn of(scenario: Scenario, a: Vec<Slice>, b: Vec<Slice>) -> Self {
        let spread = |figure: &dyn Fn(&Slice) -> Option<f64>| {
            let figures =
                |slices: &[Slice]| slices.iter().map(figure).collect::<Option<Vec<f64>>>();
            Spread::of(ratios(&figures(&a)?, &figures(&b)?))
        };
        let cost = |figure: fn(&Cost) -> Option<f64>| {
            spread(&|slice: &Slice| slice.cost.as_ref().and_then(figure))
        };
        Self {
            scenario,
            throughput: spread(&|slice| Some(slice.requests_per_second)),
            cpu: cost(|cost| cost.cpu_us.measured()),
            service_cpu: cost(|cost| cost.cpu_us.service),
            redis_cpu: cost(|cost| cost.cpu_us.redis),
            postgres_cpu: cost(|cost| cost.cpu_us.postgres),
            aof_bytes: cost(|cost| cost.redis.as_ref()?.aof_bytes),
            a,
            b,
        }
    }
}
