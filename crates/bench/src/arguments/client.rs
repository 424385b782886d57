//! The arguments of the load.

use std::time::Duration;

use clap::Args;

/// Settings of the load.
#[derive(Args, Clone)]
pub(crate) struct ClientArguments {
    /// Seconds that each slice is measured, after a warm-up
    #[arg(long, default_value_t = 5.0, value_parser = positive)]
    pub seconds: f64,
    /// Seconds of load before each slice that do not count
    #[arg(long, default_value_t = 0.5, value_parser = positive)]
    pub warm_up_seconds: f64,
    /// Connections, opened before the clock starts
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub connections: u32,
    /// Threads that send [default: one for every four cores]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: Option<u32>,
    /// Milliseconds that an answer is waited for
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub timeout_ms: u64,
}

impl ClientArguments {
    /// For a closed loop that ends when everything is sent.
    pub fn closed(connections: u32, timeout_ms: u64) -> Self {
        Self { seconds: 1.0, warm_up_seconds: 0.01, connections, threads: None, timeout_ms }
    }

    pub fn measured(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    pub fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up_seconds)
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// A quarter of the machine for the client leaves the rest to what is measured.
    pub fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or(cores / 4, |threads| threads as usize).max(1)
    }
}

/// A number above 0.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "give a number".to_owned())?;
    if (0.01..=10_000_000.0).contains(&number) {
        return Ok(number);
    }
    Err("give a number from 0.01 to 10000000".into())
}
