//! The base of all modules: settings, limits, the clock, telemetry and shutdown. Nothing here knows what is being
//! sold.

// Settings: flags and environment variables.
pub mod config;

// Secrets of settings, in place or in files.
pub mod secret;

// Hosts and ports of settings.
pub mod host_port;

// Durability levels of confirmed writes.
pub mod durability;

// Metrics and log lines.
pub mod telemetry;

// Text of others, as a terminal may show it.
pub mod plain_text;

// Gauges as Prometheus reads them.
pub mod gauges;

// Counts and times that the process can read again.
pub mod tally;

// Time and memory that this process has used.
pub mod usage;

// The stop of a process, and the owner of its tasks.
pub mod shutdown;

// The clock, passed in.
pub mod clock;

// Inputs of tests, changed at random.
#[cfg(test)]
pub mod fuzzing;

// Bounds of everything, and their relations.
pub mod limits;
