//! The arguments of the bench.

pub mod client;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use self::client::{ClientArguments, positive};
use crate::load::scenario::Scenario;
use flash_sale::base::config::{InvalidConfig, StoreConfig};

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
Without --url it starts a service of its own, with private servers in a temporary folder (TMPDIR), and removes both at the end. \
--redis-url, --database-url and --key-prefix say where the service behind --url keeps its data, for the verdict; no other client \
may use that service meanwhile. docs/bench.md says how to read the figures.\n\n\
Exit codes: 0 done; 1 failed; 2 the command line or a setting is wrong; 3 a program is missing on this machine; 4 the \
figures may not be believed.";

/// Orders of a backlog that is drained.
pub(crate) const DRAINED_ORDERS: u64 = 200_000;
/// Connections that fill the order log before: more share a sync of Redis.
pub(crate) const FILLING_CONNECTIONS: u32 = 256;

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

#[derive(Args, Clone)]
pub(crate) struct RunArguments {
    /// Scenarios, one after the other [default: bare,no-op,win,sold-out,duplicate, and everything below for win]
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
    /// Users of a countdown, all at the same instant
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    pub users: u32,
    /// Service to measure, like http://127.0.0.1:8080; needs --token-secret [default: one of its own]
    #[arg(long)]
    pub url: Option<String>,
    /// Binary of the service that is started [default: flash-sale, beside this program]
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Further arguments of the service that is started, as one string
    #[arg(long, allow_hyphen_values = true, default_value = "")]
    pub service_args: String,
    /// Write the table of the goals into this document, between its two markers; only with a run of everything
    #[arg(long)]
    pub goals: Option<PathBuf>,
    /// Write all figures to this file, as JSON
    #[arg(long)]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub client: ClientArguments,
    #[command(flatten)]
    pub stores: StoreConfig,
}

#[derive(Args)]
pub(crate) struct CompareArguments {
    /// First target: a flash-sale binary, which gets private servers, or the URL of a running service
    #[arg(long)]
    pub a: String,
    /// Second target
    #[arg(long)]
    pub b: String,
    /// Further arguments of the first service, as one string
    #[arg(long, allow_hyphen_values = true, default_value = "")]
    pub a_args: String,
    /// Further arguments of the second service, as one string
    #[arg(long, allow_hyphen_values = true, default_value = "")]
    pub b_args: String,
    /// Scenarios to compare
    #[arg(long, value_enum, value_delimiter = ',', default_value = "win")]
    pub scenario: Vec<Scenario>,
    /// Pairs of slices for each scenario, alternately A-B and B-A; an even number is fair to both
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub pairs: u32,
    /// Write all figures to this file, as JSON
    #[arg(long)]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub client: ClientArguments,
    #[command(flatten)]
    pub stores: StoreConfig,
}

#[derive(Args)]
pub(crate) struct DrainArguments {
    /// Orders of each backlog
    #[arg(long, default_value_t = DRAINED_ORDERS, value_parser = clap::value_parser!(u64).range(100..=5_000_000))]
    pub orders: u64,
    /// Backlogs, one after the other; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Rows in one transaction: of the worker at most, of COPY always [default: the service's own]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub batch_orders_max: Option<u32>,
    /// Connections that fill the order log
    #[arg(long, default_value_t = FILLING_CONNECTIONS, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub connections: u32,
    /// Binary of the service that is started [default: flash-sale, beside this program]
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Further arguments of the service, as one string
    #[arg(long, allow_hyphen_values = true, default_value = "")]
    pub service_args: String,
    /// Write all figures to this file, as JSON
    #[arg(long)]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub stores: StoreConfig,
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

impl BenchArguments {
    /// Settings of the stores, and of the log.
    pub fn stores(&self) -> &StoreConfig {
        match &self.command {
            Some(BenchCommand::Run(run)) => &run.stores,
            Some(BenchCommand::Compare(compare)) => &compare.stores,
            Some(BenchCommand::Drain(drain)) => &drain.stores,
            _ => &self.run.stores,
        }
    }
}

impl RunArguments {
    /// The scenarios in the order they were asked for.
    pub fn scenarios(&self) -> Vec<Scenario> {
        match self.scenario.is_empty() {
            true => {
                let mut scenarios = vec![Scenario::NoOp, Scenario::Win];
                scenarios.extend([Scenario::SoldOut, Scenario::Duplicate]);
                if self.is_everything() {
                    scenarios.insert(0, Scenario::Bare);
                }
                scenarios
            }
            false => self.scenario.clone(),
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
        let can = !matches!(scenario, Scenario::Countdown | Scenario::Bare);
        self.rate.is_none() && can && (asked_for || by_default)
    }

    /// Refuses arguments that don't fit together.
    ///
    /// # Errors
    ///
    /// The reason, and the way out.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        let scenarios = self.scenarios();
        let reason = if self.rate.is_some() && scenarios.contains(&Scenario::Countdown) {
            "--rate and the countdown exclude each other: all users come at once there"
        } else if self.url.is_some() && self.drain_orders() > 0 {
            "--drain-orders needs servers of our own: leave out --url"
        } else if self.goals.is_some() && !self.is_everything() {
            "--goals needs a run of everything: leave out --scenario, --rate and --url"
        } else {
            return Ok(());
        };
        Err(InvalidConfig::new(reason))
    }

    /// Orders of each backlog that is drained at the end; only on servers of the bench.
    pub fn drain_orders(&self) -> u64 {
        let default = if self.is_everything() { DRAINED_ORDERS } else { 0 };
        self.drain_orders.unwrap_or(default)
    }

    /// True if no part to measure has been named.
    pub fn is_everything(&self) -> bool {
        self.scenario.is_empty() && self.rate.is_none() && self.url.is_none()
    }
}
