//! The command line: one sub-command for each role. Only here are the parts of the service put together.

// The service with a coupon on sale, and lines to paste.
mod demo;

// The service: doors, worker and stop.
mod serve;

// Coupons, for operators.
mod coupon;

// The gateway that takes money, in words.
mod payments;

// Lists of what waits for a person, and of its parts; orders that are moved for their buyers.
mod lists;

// Recoveries on an operator's word.
mod recover;

// Data of one user.
mod user;

// The order log.
mod log;

// Comparison of the stores.
mod reconcile;

// Checks of machine and stores before the service starts.
mod doctor;

// The worth of a 202, by the settings of Redis.
mod persistence;

// Access tokens.
mod token;

// A crowd on this machine.
mod storm;

// A Redis and a Postgres for a test run.
mod private_servers;

// The two forms of an order id, and the key that a data folder keeps.
mod id;

// Stores of a command, and the token secret.
mod stores;

use std::process::ExitCode;

use ::private_servers::PrivateServersError;
use clap::{Parser, Subcommand};

use crate::base::config::{Config, InvalidConfig, StoreConfig};
use crate::base::telemetry;
use crate::sale::Failure;
use crate::sale::installation::UnfitKey;

/// Sells a limited number of coupons to a crowd that arrives all at once: never one too many, never
/// twice to one person, and never forgetting a sale that it confirmed.
#[derive(Parser)]
#[command(name = "flash-sale", version, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Every option can be given by the environment variable beside it; a flag wins.

Exit codes: 0 done; 1 failed; 2 the command line or a setting is wrong; 3 a program is missing on this \
machine; 4 Redis and Postgres disagree (reconcile); 5 something has to be put right (doctor).";

#[derive(Subcommand)]
enum Command {
    /// Serve: answer requests, write orders, or both
    Serve(Box<Config>),
    /// Try it: serve with private servers and a coupon that is on sale, and print what to paste
    Demo(Box<Config>),
    /// Bring the database up to date
    Migrate(StoreConfig),
    /// Create, change and read coupons
    Coupon(coupon::CouponArguments),
    /// Make access tokens, one a line
    Token(token::TokenArguments),
    /// Compare Redis with Postgres and name every disagreement; repairs nothing unless told to
    Reconcile(reconcile::ReconcileArguments),
    /// Change over to the order log of this version
    Log(log::LogArguments),
    /// List what passes of the workers could not deal with and try again, and what to do about it
    Postponed(lists::postponed::PostponedArguments),
    /// List all that waits for a person: its age, its harm, and the commands that settle it
    Operations(lists::operations::OperationsArguments),
    /// Cancel or refund orders for their buyers, or cancel all unpaid orders of a coupon
    Orders(lists::orders::OrdersArguments),
    /// List claims that could not become orders, try them again, or discard them
    DeadLetters(lists::dead_letters::DeadLettersArguments),
    /// List payments that no order has or that go back, hand one back, or close one
    Payments(lists::payments::PaymentsArguments),
    /// Tell claims, orders by status, and the sequence of a day
    Statistics(lists::statistics::StatisticsArguments),
    /// List changes that the staff has made, over HTTP and by commands
    Audit(lists::audit::AuditArguments),
    /// Translate an order id between its form outside and its form in log lines, stores and commands
    Id(id::IdArguments),
    /// Hand out all data of a user, or erase the user
    User(user::UserArguments),
    /// List closures of lanes after a start or a loss of Redis, and how each ended
    Recoveries(lists::recoveries::RecoveriesArguments),
    /// Compare lanes with Postgres and build their damaged sales anew, on your word
    Recover(recover::RecoverArguments),
    /// Say what is configured, reachable and unsafe, and what that costs; changes nothing
    Doctor(Box<doctor::DoctorArguments>),
    /// Send a crowd to a service on this machine, with a sale of its own, and print what it was told as JSON lines
    Storm(Box<storm::StormArguments>),
    /// Start private servers without the service, print their URLs as JSON, stop at the end of input
    PrivateServers(private_servers::PrivateServersArguments),
}

/// Redis and Postgres disagree; the report has been printed.
#[derive(Debug, thiserror::Error)]
#[error("Redis and Postgres disagree in {0} places; each is named above")]
struct Disagree(usize);

/// A setting or a server does not fit the service; the report has been printed.
#[derive(Debug, thiserror::Error)]
#[error("{0} of the findings above must be put right")]
struct Unwell(usize);

/// Runs the sub-command, and prints the cause of a failure on standard error.
pub fn main() -> ExitCode {
    let command = Arguments::parse().command;
    let stores = command.stores();
    let ready = telemetry::log_to_stderr(stores.log_format, &stores.log_filter)
        .map_err(|error| anyhow::anyhow!(error).context("--log can't be understood"));
    let done = ready.and_then(|()| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let done = runtime.block_on(command.run());
        // Every task with an owner has ended. A thread that reads standard input may not have, and only input could
        // wake it up.
        runtime.shutdown_background();
        done
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flash-sale: {error:#}");
            exit_code(&error)
        }
    }
}

impl Command {
    fn stores(&self) -> &StoreConfig {
        match self {
            Self::Serve(config) | Self::Demo(config) => &config.stores,
            Self::Migrate(stores) => stores,
            Self::Reconcile(arguments) => &arguments.stores,
            Self::Log(arguments) => arguments.stores(),
            Self::Postponed(arguments) => arguments.stores(),
            Self::Operations(arguments) => &arguments.stores,
            Self::Orders(arguments) => arguments.stores(),
            Self::DeadLetters(arguments) => arguments.stores(),
            Self::Payments(arguments) => arguments.stores(),
            Self::Statistics(arguments) => &arguments.stores,
            Self::Audit(arguments) => &arguments.stores,
            Self::Id(arguments) => arguments.stores(),
            Self::User(arguments) => arguments.stores(),
            Self::Recoveries(arguments) => arguments.stores(),
            Self::Recover(arguments) => arguments.stores(),
            Self::Coupon(arguments) => arguments.stores(),
            Self::Token(arguments) => &arguments.stores,
            Self::Doctor(arguments) => &arguments.config.stores,
            Self::Storm(arguments) => &arguments.stores,
            Self::PrivateServers(arguments) => &arguments.stores,
        }
    }

    async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Serve(config) => serve::run(&config, async |_, _| Ok(())).await,
            Self::Demo(config) => demo::run(&config).await,
            Self::Migrate(config) => stores::migrate(&config).await,
            Self::Coupon(arguments) => coupon::run(arguments).await,
            Self::Token(arguments) => token::run(&arguments),
            Self::Reconcile(arguments) => reconcile::run(&arguments).await,
            Self::Log(arguments) => log::run(&arguments).await,
            Self::Postponed(arguments) => lists::postponed::run(&arguments).await,
            Self::Operations(arguments) => lists::operations::run(&arguments).await,
            Self::Orders(arguments) => lists::orders::run(&arguments).await,
            Self::DeadLetters(arguments) => lists::dead_letters::run(&arguments).await,
            Self::Payments(arguments) => lists::payments::run(&arguments).await,
            Self::Statistics(arguments) => lists::statistics::run(&arguments).await,
            Self::Audit(arguments) => lists::audit::run(&arguments).await,
            Self::Id(arguments) => id::run(&arguments).await,
            Self::User(arguments) => user::run(&arguments).await,
            Self::Recoveries(arguments) => lists::recoveries::run(&arguments).await,
            Self::Recover(arguments) => recover::run(&arguments).await,
            Self::Doctor(arguments) => doctor::run(&arguments).await,
            Self::Storm(arguments) => storm::run(&arguments).await,
            Self::PrivateServers(arguments) => private_servers::run(&arguments).await,
        }
    }
}

fn exit_code(error: &anyhow::Error) -> ExitCode {
    let unfit_key = error.downcast_ref().is_some_and(UnfitKey::is_of_setting);
    let other_installation =
        matches!(error.downcast_ref::<Failure>(), Some(Failure::OtherInstallation(_)));
    let code = if error.is::<InvalidConfig>() || unfit_key || other_installation {
        2
    } else if let Some(PrivateServersError::MissingProgram { .. }) = error.downcast_ref() {
        3
    } else if error.is::<Disagree>() {
        4
    } else if error.is::<Unwell>() {
        5
    } else {
        1
    };
    ExitCode::from(code)
}
