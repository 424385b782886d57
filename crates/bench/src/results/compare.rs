//! All figures of `flash-sale-bench compare`.

use serde::Serialize;

use super::machine::Machine;
use crate::figures::{Spread, ratios};
use crate::load::scenario::Scenario;
use crate::measure::slice::Slice;
use crate::service::verdict::Verdict;

/// All figures of a comparison.
#[derive(Debug, Serialize)]
pub struct CompareReport {
    pub machine: Machine,
    /// First target: binary or URL, and further arguments.
    pub a: String,
    pub b: String,
    pub comparisons: Vec<Comparison>,
    pub verdicts: [Verdict; 2],
}

/// One scenario. Every ratio is B / A of one pair of neighbouring slices.
#[derive(Debug, Serialize)]
pub struct Comparison {
    pub scenario: Scenario,
    pub throughput: Option<Spread>,
    pub service_cpu: Option<Spread>,
    pub redis_cpu: Option<Spread>,
    pub postgres_cpu: Option<Spread>,
    pub a: Vec<Slice>,
    pub b: Vec<Slice>,
}

impl Comparison {
    pub fn of(scenario: Scenario, a: Vec<Slice>, b: Vec<Slice>) -> Self {
        let spread = |figure: fn(&Slice) -> Option<f64>| {
            let figures =
                |slices: &[Slice]| slices.iter().map(figure).collect::<Option<Vec<f64>>>();
            Spread::of(ratios(&figures(&a)?, &figures(&b)?))
        };
        Self {
            scenario,
            throughput: spread(|slice| Some(slice.requests_per_second)),
            service_cpu: spread(|slice| slice.cpu_us_per_request.service),
            redis_cpu: spread(|slice| slice.cpu_us_per_request.redis),
            postgres_cpu: spread(|slice| slice.cpu_us_per_request.postgres),
            a,
            b,
        }
    }
}
