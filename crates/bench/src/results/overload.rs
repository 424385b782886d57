//! All figures of one scenario under overload.

use serde::Serialize;

use crate::figures::{Spread, ratios};
use crate::load::scenario::Scenario;
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
    pub verdict: Verdict,
    /// Good answers a second under the overload to those of a closed loop, pair by pair.
    pub to_peak: Option<Spread>,
    /// Other answers that don't belong into the scenario, time-outs, broken connections.
    pub other_troubles: u64,
    pub peaks: Vec<Slice>,
    pub floods: Vec<Slice>,
}

impl Overload {
    pub fn of(
        scenario: Scenario,
        client_cores: Option<usize>,
        peaks: Vec<Slice>,
        floods: Vec<Slice>,
        verdict: Verdict,
    ) -> Self {
        let good = |slices: &[Slice]| -> Vec<f64> {
            slices.iter().map(|slice| slice.good_per_second).collect()
        };
        let to_peak = Spread::of(ratios(&good(&peaks), &good(&floods)));
        let endings = floods.iter().flat_map(|slice| &slice.endings);
        let troubles =
            endings.filter(|ending| !scenario.expects(ending) && ending.code != "overloaded");
        let other_troubles = troubles.map(|ending| ending.count).sum();
        Self { scenario, client_cores, verdict, to_peak, other_troubles, peaks, floods }
    }
}
