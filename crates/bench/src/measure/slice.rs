//! The figures of one slice.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::load::record::{Ending, Recorder};
use crate::load::scenario::Scenario;
use crate::measure::cost::Cost;
use crate::measure::durable::Durable;
use crate::service::cpu::CpuTimes;

/// The figures of one slice.
#[derive(Clone, Debug, Serialize)]
pub struct Slice {
    pub scenario: Scenario,
    /// Requests due a second; none in a closed loop.
    pub rate: Option<f64>,
    pub connections: usize,
    pub seconds: f64,
    /// Answers within the measured time.
    pub requests: u64,
    pub requests_per_second: f64,
    /// Answers a second that belong into the scenario.
    pub good_per_second: f64,
    pub sent_per_second: f64,
    /// Ends of all requests, those of the warm-up included.
    pub endings: Vec<Ending>,
    pub never_sent: u64,
    /// Open loop only: in a closed loop it would say nothing.
    pub latency: Option<Latency>,
    /// From the last answer until all was written.
    pub drain_seconds: Option<f64>,
    pub time_to_row: Option<Durable>,
    /// The cost of a request from the first one, warm-up included, until everything that was sold is written.
    pub cost: Option<Cost>,
}

/// Latency from the moment when a request was due to its answer.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    /// Median of the answers that belong into the scenario.
    pub good_p50_ms: Option<f64>,
    /// Highest latency of 99 of 100 such answers.
    pub good_p99_ms: Option<f64>,
    /// 99 of 100 requests were sent at most so much later than they were due; part of the latency above.
    pub sent_late_p99_ms: f64,
}

impl Latency {
    /// The latencies that a recorder has counted.
    pub fn of(recorder: &Recorder) -> Self {
        let at = |histogram: &Histogram<u64>, share: f64| {
            histogram.value_at_quantile(share) as f64 / 1_000.0
        };
        let latency = &recorder.latency;
        let good = |share| (!recorder.good.is_empty()).then(|| at(&recorder.good, share));
        Self {
            mean_ms: latency.mean() / 1_000.0,
            p50_ms: at(latency, 0.5),
            p90_ms: at(latency, 0.9),
            p99_ms: at(latency, 0.99),
            p999_ms: at(latency, 0.999),
            max_ms: latency.max() as f64 / 1_000.0,
            good_p50_ms: good(0.5),
            good_p99_ms: good(0.99),
            sent_late_p99_ms: at(&recorder.lateness, 0.99),
        }
    }
}

/// The mean cost over all requests of these slices.
pub fn mean_cpu<'a>(slices: impl IntoIterator<Item = &'a Slice>) -> CpuTimes {
    let costs: Vec<&Cost> = slices.into_iter().filter_map(|slice| slice.cost.as_ref()).collect();
    CpuTimes::mean(costs.iter().map(|cost| (&cost.cpu_us, cost.requests)))
}
