//! Seeds, one after the other or several side by side.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::task::JoinSet;

use super::arguments::Arguments;
use super::laboratory::Laboratory;
use super::report::{Line, sum};
use super::shrink::shrink;
use crate::plan::Need;
use crate::world::Machine;

/// The seeds of a call, which its jobs share.
struct Queue {
    arguments: Arguments,
    machine: Machine,
    began: Instant,
    seeds: Mutex<std::vec::IntoIter<u64>>,
    /// Results of the seeds that have been run to their end.
    lines: Mutex<Vec<Line>>,
}

/// Runs each seed, until a Ctrl-C, and tells what has been seen. False: an invariant is broken.
pub async fn explore(arguments: &Arguments, machine: &Machine) -> anyhow::Result<bool> {
    say_skipped(machine);
    let queue = Arc::new(Queue {
        arguments: arguments.clone(),
        machine: machine.clone(),
        began: Instant::now(),
        seeds: Mutex::new(arguments.seeds().into_iter()),
        lines: Mutex::default(),
    });
    let mut jobs = JoinSet::new();
    for job in 0..arguments.jobs {
        jobs.spawn(queue.clone().work(job));
    }
    let ended = tokio::select! {
        ended = all(&mut jobs) => ended.map(|()| false),
        _ = tokio::signal::ctrl_c() => Ok(true),
    };
    // Dropped, a run ends its servers and removes their folders. Its seed is not among the lines.
    jobs.shutdown().await;
    let lines = std::mem::take(&mut *lock(&queue.lines));
    println!("{}", sum(&lines));
    let _ = std::fs::remove_file(arguments.logs().join("clock.c"));
    if lines.iter().all(Line::holds) && !arguments.keep && ended.is_ok() {
        let _ = std::fs::remove_dir_all(arguments.logs());
    }
    let is_interrupted = ended.with_context(|| format!("stopped after {} seeds", lines.len()))?;
    anyhow::ensure!(!is_interrupted, "interrupted after {} seeds", lines.len());
    Ok(lines.iter().all(Line::holds))
}

/// Waits for all jobs; or for the first that fails.
async fn all(jobs: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    while let Some(job) = jobs.join_next().await {
        job??;
    }
    Ok(())
}

impl Queue {
    /// Runs one seed after the other, on a Postgres of this job's own.
    async fn work(self: Arc<Self>, job: u8) -> anyhow::Result<()> {
        let mut laboratory = Laboratory::open(&self.arguments, &self.machine, job).await?;
        while let Some(seed) = self.next() {
            let plan = self.arguments.plan_of(seed);
            let line = laboratory.try_out(&plan).await?;
            if !line.holds() && self.arguments.shrink {
                shrink(&mut laboratory, &self.arguments, plan).await?;
            }
            lock(&self.lines).push(line);
        }
        Ok(())
    }

    /// The next seed; `None` if there is none, or no time for it.
    fn next(&self) -> Option<u64> {
        let minutes = self.arguments.minutes;
        let is_over = |minutes| self.began.elapsed() >= Duration::from_secs(60 * minutes);
        if minutes.is_some_and(is_over) { None } else { lock(&self.seeds).next() }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().expect("no holder of this lock panics")
}

fn say_skipped(machine: &Machine) {
    for need in [Need::Mount, Need::Strace, Need::Compiler] {
        if !machine.permits(need) {
            println!("SKIPPED: faults that need {need:?}, which this machine does not permit");
        }
    }
}
