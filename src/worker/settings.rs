//! Settings of the passes of a lane.

use std::time::Duration;

use crate::base::config::Config;

/// Settings of the passes.
#[derive(Clone, Copy, Debug)]
pub struct WorkerSettings {
    /// Orders written in one transaction, at most.
    pub batch_orders_max: usize,
    /// Time for which a worker must have held an entry before another one takes it over.
    pub take_over_idle: Duration,
    /// Period of the recover pass.
    pub recover_period: Duration,
}

impl From<&Config> for WorkerSettings {
    fn from(config: &Config) -> Self {
        Self {
            batch_orders_max: usize::try_from(config.batch_orders_max).unwrap_or(usize::MAX),
            take_over_idle: config.take_over_idle(),
            recover_period: config.recover_period(),
        }
    }
}
