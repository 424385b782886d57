//! The command line.

// Seeds, one after the other.
mod explore;

// The smallest plan that still fails.
mod shrink;

// Everything that runs share.
mod laboratory;

// Lines, table, and the document that they are appended to.
mod report;

// Arguments.
mod arguments;

use std::process::ExitCode;

use clap::Parser;

use crate::world::Machine;
use arguments::Arguments;

/// Runs the command, and prints the cause of a failure on standard error. Exit code 4: an invariant is broken.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.plan {
        for seed in arguments.seeds() {
            print!("{}", arguments.plan_of(seed));
        }
        return ExitCode::SUCCESS;
    }
    let done = prepared(&arguments).and_then(|machine| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let done = runtime.block_on(explore::explore(&arguments, &machine));
        runtime.shutdown_background();
        done
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(4),
        Err(error) => {
            eprintln!("flash-sale-explorer: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Before any thread is started.
fn prepared(arguments: &Arguments) -> anyhow::Result<Machine> {
    std::fs::create_dir_all(arguments.logs())?;
    Machine::look(&arguments.logs())
}
