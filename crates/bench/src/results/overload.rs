//! All figures of one scenario under overload.

use serde::Serialize;

use crate::figures::{Spread, ratios};
use crate::load::scenario::Scenario;
use crate::measure::probe::Probe;
use crate::measure::slice::Slice;
use crate::service::verdict::Verdict;

/// Requests come at so many times the peak.
pub const TIMES: f64 = 2.0;

/// One scenario, overloaded.
#[derive(Debug, Serialize)]
pub struct Overload {
    pub scenario: Scenario,
    /// Cores that the client had to itself; none: it shared all of them.
    pub client_cores: Option<usize>,
    /// Verdict of the service that was started for it; none: it was the run's.
    pub verdict: Option<Verdict>,
    /// Good answers a second in a closed loop.
    pub peak_per_second: Option<Spread>,
    /// Good answers a second under the overload, and what they are to the peak, pair by pair.
    pub good_per_second: Option<Spread>,
    pub to_peak: Option<Spread>,
    pub overloaded_per_second: Option<Spread>,
    /// Other answers that don't belong into the scenario, time-outs, broken connections.
    pub other_troubles: u64,
    pub probes: Vec<Probe>,
    pub peaks: Vec<Slice>,
    pub floods: Vec<Slice>,
}

impl Overload {
    pub fn of(
        scenario: Scenario,
        peaks: Vec<Slice>,
        floods: Vec<Slice>,
        probes: Vec<Probe>,
        warm_up_seconds: f64,
    ) -> Self {
        let good = |slices: &[Slice]| -> Vec<f64> {
            slices.iter().map(|slice| slice.good_per_second).collect()
        };
        let peak = good(&peaks);
        let flooded = good(&floods);
        let overloaded = floods.iter().map(|slice| {
            let said = slice.endings.iter().filter(|ending| ending.code == "overloaded");
            let said: u64 = said.map(|ending| ending.count).sum();
            said as f64 / (slice.seconds + warm_up_seconds)
        });
        let endings = floods.iter().flat_map(|slice| &slice.endings);
        let troubles =
            endings.filter(|ending| !scenario.expects(ending) && ending.code != "overloaded");
        Self {
            scenario,
            client_cores: None,
            verdict: None,
            to_peak: Spread::of(ratios(&peak, &flooded)),
            peak_per_second: Spread::of(peak),
            good_per_second: Spread::of(flooded),
            overloaded_per_second: Spread::of(overloaded),
            other_troubles: troubles.map(|ending| ending.count).sum(),
            probes,
            peaks,
            floods,
        }
    }
}
