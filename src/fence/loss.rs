//! The alarm for a sale that Redis has lost.

use std::sync::{Arc, Mutex};

use crate::base::telemetry::{LogThrottle, Metrics};
use crate::fence::LaneStates;
use crate::store::Failure;
use crate::store::ids::CouponId;

pub struct LossAlarm {
    metrics: Arc<Metrics>,
    /// Has the sale's lane checked at once.
    lanes: Arc<LaneStates>,
    /// Each claim on a lost sale raises the alarm; an operator needs one line, not one for each claim.
    throttle: Mutex<LogThrottle>,
}

impl LossAlarm {
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
