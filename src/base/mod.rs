//! The base of all modules: settings, limits, the clock, telemetry and shutdown. Nothing here knows what is sold.

// Settings: flags and environment variables.
pub mod config;

// Secrets in settings, in place or in files.
pub mod secret;

// Hosts and ports in settings.
pub mod host_port;

// Durability levels of confirmed writes.
pub mod durability;

// Metrics and log lines.
pub mod telemetry;

// Escapes text of others for terminals and logs.
pub mod plain_text;

// Gauges for Prometheus that can vanish.
pub mod gauges;

// Counts and times that the process can read back.
pub mod tally;

// Processor time and memory of this process.
pub mod usage;

// The stop of a process, and the owner of its tasks.
pub mod shutdown;

// The clock, which is passed in.
pub mod clock;

// Inputs for tests: seeds with one change each.
#[cfg(test)]
pub mod fuzzing;

// Limits of everything, and their relations.
pub mod limits;
