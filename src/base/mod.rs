//! The base of all modules: settings, limits, the clock, telemetry and shutdown. Nothing here knows what is being
//! sold.

pub mod clock;
pub mod config;
pub mod gauges;
pub mod limits;
pub mod shutdown;
pub mod telemetry;
