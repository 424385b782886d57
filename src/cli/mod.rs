//! The command line: one sub-command for each role. Only here are the parts of the service put together.

// The service with a coupon on sale, and lines to paste.
mod demo;

// The service: start, listeners, worker and stop.
mod serve;

// Coupons, for operators.
mod coupon;

// Recoveries that an operator asks for.
mod recover;

// Comparison of the stores.
mod reconcile;

// Checks of the configuration and of the servers.
mod doctor;

// Findings of `serve` and `doctor`.
mod finding;

// Access tokens.
mod token;

// A crowd on this machine.
mod storm;

// A Redis and a Postgres for a test run.
mod private_servers;

// Stores of a command, and the token secret.
mod stores;

// Secrets in files, read again.
mod secrets;

// Remedies for messages that name none.
mod remedies;

// Standard output.
mod terminal;

// Rules for environment variables.
mod environment;

use std::process::ExitCode;

use ::private_servers::PrivateServersError;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use serde_json::json;

use crate::base::clock::Clock;
use crate::base::config::{Config, InvalidConfig, StoreConfig};
use crate::base::plain_text::escaped;
use crate::base::telemetry::{self, LogFormat};
use crate::cli::remedies::with_remedy;
use crate::store::Failure;

/// Sells a limited number of coupons to a crowd that arrives all at once: never one too many, never
/// twice to one person, and never forgetting a sale that it confirmed.
#[derive(Parser)]
#[command(name = "flash-sale", version, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Every option can be given by the environment variable beside it; a flag wins, and an empty variable counts as none. \
A secret may stand in a file: give @/path in place of it, or the path in the variable with _FILE behind its name.

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
    /// Create a coupon
    Coupon(coupon::CouponArguments),
    /// Make access tokens, one a line
    Token(token::TokenArguments),
    /// Compare Redis with Postgres, name every disagreement, and put right what needs no decision
    Reconcile(StoreConfig),
    /// Compare lanes with Postgres and build their damaged sales anew, on your word
    Recover(recover::RecoverArguments),
    /// Say what is configured, reachable and unsafe, and what that costs; changes nothing
    Doctor(Box<doctor::DoctorArguments>),
    /// Send a crowd to a service on this machine, with a sale of its own, and judge what it was told; prints JSON lines
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
    let matches = environment::applied(Arguments::command()).try_get_matches();
    let arguments = matches.and_then(|matches| Arguments::from_arg_matches(&matches));
    let command = match arguments {
        Ok(arguments) => arguments.command,
        Err(error) if error.use_stderr() => {
            let words = error.render().to_string();
            match environment::asks_for_json() {
                true => tell_end(LogFormat::Json, words.trim()),
                false => eprint!("{}", escaped(&words)),
            }
            return ExitCode::from(2);
        }
        Err(error) => error.exit(),
    };
    let stores = command.stores();
    let format = stores.log_format;
    let ready = telemetry::log_to_stderr(stores.log_format, &stores.log_filter)
        .map_err(|error| anyhow::anyhow!(error).context("--log can't be understood"));
    if format == LogFormat::Json {
        std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    }
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
            tell_end(format, &with_remedy(&format!("{error:#}")));
            exit_code(&error)
        }
    }
}

/// Prints why the command failed, in the format of the log.
fn tell_end(format: LogFormat, words: &str) {
    match format {
        LogFormat::Text => eprintln!("flash-sale: {}", escaped(words)),
        LogFormat::Json => {
            let line = json!({"timestamp": Clock::System.now(), "level": "ERROR", "fields": {"message": words}});
            eprintln!("{}", escaped(&line.to_string()));
        }
    }
}

impl Command {
    fn stores(&self) -> &StoreConfig {
        match self {
            Self::Serve(config) | Self::Demo(config) => &config.stores,
            Self::Migrate(stores) | Self::Reconcile(stores) => stores,
            Self::Recover(arguments) => &arguments.stores,
            Self::Coupon(arguments) => {
                let coupon::CouponCommand::Create(arguments) = &arguments.command;
                &arguments.stores
            }
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
            Self::Reconcile(config) => reconcile::run(&config).await,
            Self::Recover(arguments) => recover::run(&arguments).await,
            Self::Doctor(arguments) => doctor::run(&arguments).await,
            Self::Storm(arguments) => storm::run(&arguments).await,
            Self::PrivateServers(arguments) => private_servers::run(&arguments).await,
        }
    }
}

fn exit_code(error: &anyhow::Error) -> ExitCode {
    let other_installation =
        matches!(error.downcast_ref::<Failure>(), Some(Failure::OtherInstallation(_)));
    let code = if error.is::<InvalidConfig>() || other_installation {
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
