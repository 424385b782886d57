//! What everything stands on. Nothing here knows what is being sold.

pub mod clock;
pub mod config;
pub mod gauges;
pub mod limits;
pub mod shutdown;
pub mod telemetry;
