//! The alarm for a sale that Redis has lost.

use std::sync::{Arc, Mutex};

use crate::base::telemetry::{LogThrottle, Metrics};
use crate::sale::Failure;
use crate::sale::ids::CouponId;

/// Counts and logs lost sales.
pub struct LossAlarm {
    metrics: Arc<Metrics>,
    /// Each claim on a lost sale raises the alarm; an operator needs one line, not one for each claim.
    throttle: Mutex<LogThrottle>,
}

impl LossAlarm {
    /// An alarm that counts in these metrics.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, throttle: Mutex::default() }
    }

    /// Raises the alarm, and returns the failure to answer with.
    pub fn raise(&self, coupon: CouponId) -> Failure {
        self.metrics.data_lost.increment(1);
        if self.throttle.lock().is_ok_and(|mut throttle| throttle.allows()) {
            tracing::error!(%coupon, "ALARM: Redis has lost this sale, or part of it; claims on it are refused, run `flash-sale reconcile`");
        }
        Failure::DataLost(coupon)
    }
}
