//! The alarm for a sale that Redis has lost.

use std::sync::{Arc, Mutex};

use crate::base::telemetry::{LogThrottle, Metrics};
use crate::fence::LaneStates;
use crate::store::Failure;
use crate::store::ids::CouponId;

/// Counts and logs lost sales.
pub struct LossAlarm {
    metrics: Arc<Metrics>,
    /// Told of the sale, so that its lane is looked at.
    lanes: Arc<LaneStates>,
    /// Each claim on a lost sale raises the alarm; an operator needs one line, not one for each claim.
    throttle: Mutex<LogThrottle>,
}

impl LossAlarm {
    /// An alarm that counts in these metrics, and has the lane of the sale looked at.
    pub fn new(metrics: Arc<Metrics>, lanes: Arc<LaneStates>) -> Self {
        Self { metrics, lanes, throttle: Mutex::default() }
    }

    /// Raises the alarm, and returns the failure to answer with.
    pub fn raise(&self, coupon: CouponId) -> Failure {
        self.metrics.data_lost.increment(1);
        self.lanes.suspect_sale(coupon);
        if self.throttle.lock().is_ok_and(|mut throttle| throttle.allows()) {
            tracing::error!(%coupon, "ALARM: Redis has lost this sale, or part of it; claims on it are refused until it has been recovered");
        }
        Failure::DataLost(coupon)
    }
}
