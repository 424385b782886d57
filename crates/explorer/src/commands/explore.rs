//! Seeds, one after the other.

use std::time::{Duration, Instant};

use super::arguments::Arguments;
use super::laboratory::Laboratory;
use super::report::{Line, append, table};
use super::shrink::shrink;
use crate::plan::Need;
use crate::world::Machine;

/// Runs each seed, until a Ctrl-C, and tells and appends what has been seen. False: an invariant is broken.
pub async fn explore(arguments: &Arguments, machine: &Machine) -> anyhow::Result<bool> {
    say_skipped(machine);
    let mut lines = Vec::new();
    let is_interrupted = tokio::select! {
        done = try_each(arguments, machine, &mut lines) => { done?; false }
        // Dropped, the run ends its servers and removes their folders.
        _ = tokio::signal::ctrl_c() => true,
    };
    println!("{}", table(&lines));
    if let Some(document) = &arguments.append
        && !lines.is_empty()
    {
        append(document, &lines).await?;
    }
    let _ = std::fs::remove_file(arguments.logs().join("clock.c"));
    if lines.iter().all(Line::holds) && !arguments.keep {
        let _ = std::fs::remove_dir_all(arguments.logs());
    }
    anyhow::ensure!(!is_interrupted, "interrupted after {} seeds", lines.len());
    Ok(lines.iter().all(Line::holds))
}

async fn try_each(
    arguments: &Arguments,
    machine: &Machine,
    lines: &mut Vec<Line>,
) -> anyhow::Result<()> {
    let mut laboratory = Laboratory::open(arguments, machine).await?;
    let began = Instant::now();
    let is_over = || {
        arguments
            .minutes
            .is_some_and(|minutes| began.elapsed() >= Duration::from_secs(60 * minutes))
    };
    for seed in arguments.seeds() {
        if is_over() {
            break;
        }
        let plan = arguments.plan_of(seed);
        let line = laboratory.try_out(&plan).await?;
        if !line.holds() && arguments.shrink {
            shrink(&mut laboratory, arguments, plan).await?;
        }
        lines.push(line);
    }
    Ok(())
}

fn say_skipped(machine: &Machine) {
    for need in [Need::Mount, Need::Strace, Need::Compiler] {
        if !machine.permits(need) {
            println!("SKIPPED: faults that need {need:?}, which this machine does not permit");
        }
    }
}
