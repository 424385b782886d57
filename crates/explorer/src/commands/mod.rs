//! The command line.

// Seeds, one after the other or several side by side.
mod explore;

// The smallest plan that still fails.
mod shrink;

// Everything that the runs of a job share.
mod laboratory;

// A line for each seed, and their sum.
mod report;

// Arguments.
mod arguments;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::world::Machine;
use arguments::Arguments;

/// Time for all tasks to be dropped at the end.
const DROP_WITHIN: Duration = Duration::from_secs(20);

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
        // Tasks that were stopped still hold servers, which remove their folders when they are dropped.
        runtime.shutdown_timeout(DROP_WITHIN);
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
