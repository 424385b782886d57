//! The arguments of the bench.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use flash_sale::base::config::InvalidConfig;

use crate::load::scenario::Scenario;

/// Loads a flash-sale service, measures it, and says whether the figures may be believed. Without a sub-command: `run`
#[derive(Parser)]
#[command(name = "flash-sale-bench", version, args_conflicts_with_subcommands = true, after_help = AFTER_HELP)]
pub struct BenchArguments {
    #[command(subcommand)]
    pub(crate) command: Option<BenchCommand>,
    #[command(flatten)]
    pub(crate) run: RunArguments,
}

const AFTER_HELP: &str = "\
Starts the services that it measures, with private servers in a temporary folder (TMPDIR), and removes all of it at the \
end. docs/performance.md says how to read the figures.\n\n\
Exit codes: 0 done; 1 failed; 2 the command line is wrong; 3 a program is missing on this machine; 4 the figures may not \
be believed.";

/// Orders of a backlog that is drained.
pub(crate) const DRAINED_ORDERS: u64 = 200_000;

#[derive(Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure one service (the default)
    Run(Box<RunArguments>),
    /// Measure two services in turns, A-B-B-A, and print the ratio B / A
    Compare(Box<CompareArguments>),
    /// Measure how fast a backlog becomes rows, beside raw COPY of the same rows, and what a buyer costs in Redis
    Drain(Box<DrainArguments>),
    /// Serve a bare axum route until the end
    #[command(hide = true)]
    BareRoute,
    /// Keep a measured service until the end of input
    #[command(hide = true)]
    Keep(KeepArguments),
}

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
}

#[derive(Args, Clone)]
pub(crate) struct RunArguments {
    /// Scenarios, one after the other [default: all, and everything below for win]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub scenario: Vec<Scenario>,
    /// Open loop: requests a second, whatever the service does [default: closed loop]
    #[arg(long, value_parser = positive)]
    pub rate: Option<f64>,
    /// After the closed loop, open loop at half of what it has found, for every scenario
    #[arg(long, conflicts_with = "rate")]
    pub saturate: bool,
    /// After that, twice as many requests as the service can answer, for every scenario
    #[arg(long, conflicts_with = "rate")]
    pub overload: bool,
    #[command(flatten)]
    pub overloads: OverloadArguments,
    /// At the end, drain backlogs of so many orders as `drain` does; 0 for none [default: 200000, or 0 if a scenario is given]
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=5_000_000))]
    pub drain_orders: Option<u64>,
    /// Slices of each scenario, in turns with the others; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    #[command(flatten)]
    pub service: ServiceArguments,
    /// Write the table of the goals into this document, between its two markers; only with a run of everything
    #[arg(long)]
    pub goals: Option<PathBuf>,
    #[command(flatten)]
    pub client: ClientArguments,
}

/// The service that is started, and the place of its figures.
#[derive(Args, Clone)]
pub(crate) struct ServiceArguments {
    /// Binary of the service that is started [default: flash-sale, beside this program]
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Further arguments of the service, as one string
    #[arg(long, allow_hyphen_values = true, default_value = "")]
    pub service_args: String,
    /// Write all figures to this file, as JSON
    #[arg(long)]
    pub json: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct CompareArguments {
    /// Binary of the first service
    #[arg(long)]
    pub a: PathBuf,
    /// Binary of the second service
    #[arg(long)]
    pub b: PathBuf,
    /// Further arguments of the first service, as one string
    #[arg(long, allow_hyphen_values = true, default_value = "")]
    pub a_args: String,
    /// Further arguments of the second service, as one string
    #[arg(long, allow_hyphen_values = true, default_value = "")]
    pub b_args: String,
    /// Scenarios to compare
    #[arg(long, value_enum, value_delimiter = ',', default_value = "win")]
    pub scenario: Vec<Scenario>,
    /// At the end, drain a backlog of so many orders in each pair; 0 for none
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=5_000_000))]
    pub drain_orders: u64,
    /// Pairs of slices for each scenario, alternately A-B and B-A; an even number is fair to both
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub pairs: u32,
    /// Write all figures to this file, as JSON
    #[arg(long)]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub client: ClientArguments,
}

#[derive(Args)]
pub(crate) struct DrainArguments {
    /// Orders of each backlog
    #[arg(long, default_value_t = DRAINED_ORDERS, value_parser = clap::value_parser!(u64).range(100..=5_000_000))]
    pub orders: u64,
    /// Backlogs, one after the other; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    #[command(flatten)]
    pub service: ServiceArguments,
}

/// Settings of the overload.
#[derive(Args, Clone)]
pub(crate) struct OverloadArguments {
    /// Connections of the overload: too few, and the client waits instead of the service
    #[arg(long, default_value_t = 2_048, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub overload_connections: u32,
    /// Connections of the closed loop that finds the peak
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub peak_connections: u32,
}

#[derive(Args)]
pub(crate) struct KeepArguments {
    /// Data folder of the service, removed at the end
    #[arg(long)]
    pub folder: PathBuf,
    /// The service's command line
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub command: Vec<OsString>,
}

impl ClientArguments {
    /// For a closed loop that ends when everything is sent.
    pub fn closed(connections: u32) -> Self {
        Self { seconds: 1.0, warm_up_seconds: 0.01, connections, threads: None }
    }

    pub fn measured(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    pub fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up_seconds)
    }

    /// A quarter of the machine for the client leaves the rest to what is measured.
    pub fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or(cores / 4, |threads| threads as usize).max(1)
    }
}

impl RunArguments {
    /// The scenarios in the order they were asked for.
    pub fn scenarios(&self) -> Vec<Scenario> {
        match self.scenario.as_slice() {
            [] => Scenario::ALL.to_vec(),
            asked_for => asked_for.to_vec(),
        }
    }

    /// Whether this scenario's latency at half load is measured after the closed loop.
    pub fn measures_half_load(&self, scenario: Scenario) -> bool {
        self.goes_on_with(scenario, self.saturate)
    }

    /// Scenarios that are overloaded after that.
    pub fn overloaded(&self) -> Vec<Scenario> {
        let is = |scenario: &Scenario| self.goes_on_with(*scenario, self.overload);
        self.scenarios().into_iter().filter(is).collect()
    }

    fn goes_on_with(&self, scenario: Scenario, asked_for: bool) -> bool {
        let by_default = self.scenario.is_empty() && scenario == Scenario::Win;
        self.rate.is_none() && scenario != Scenario::Bare && (asked_for || by_default)
    }

    /// Refuses arguments that don't fit together.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        if self.goals.is_some() && !self.is_everything() {
            let reason = "--goals needs a run of everything: leave out --scenario and --rate";
            return Err(InvalidConfig::new(reason));
        }
        Ok(())
    }

    /// Orders of each backlog that is drained at the end.
    pub fn drain_orders(&self) -> u64 {
        let default = if self.is_everything() { DRAINED_ORDERS } else { 0 };
        self.drain_orders.unwrap_or(default)
    }

    /// True if no part to measure has been named.
    pub fn is_everything(&self) -> bool {
        self.scenario.is_empty() && self.rate.is_none()
    }
}

/// A number above 0.
fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "give a number".to_owned())?;
    if (0.01..=10_000_000.0).contains(&number) {
        return Ok(number);
    }
    Err("give a number from 0.01 to 10000000".into())
}
