//! Seeds, one after the other.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::sync::Mutex;

use super::arguments::{Arguments, less};
use super::report::{Line, append, table};
use super::shrink::shrink;
use crate::plan::{Need, Plan};
use crate::run::{Outcome, run};
use crate::world::{Machine, Postgres};

/// Runs each seed. False: an invariant is broken.
pub async fn explore(arguments: &Arguments, machine: &Machine) -> anyhow::Result<bool> {
    say_skipped(machine);
    let mut laboratory = Laboratory::open(arguments, machine).await?;
    let began = Instant::now();
    let is_over = || {
        arguments
            .minutes
            .is_some_and(|minutes| began.elapsed() >= Duration::from_secs(60 * minutes))
    };
    let mut lines = Vec::new();
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
    println!("{}", table(&lines));
    if let Some(document) = &arguments.append {
        append(document, &lines).await?;
    }
    let _ = std::fs::remove_file(arguments.logs().join("clock.c"));
    if lines.iter().all(Line::holds) && !arguments.keep {
        let _ = std::fs::remove_dir_all(arguments.logs());
    }
    Ok(lines.iter().all(Line::holds))
}

fn say_skipped(machine: &Machine) {
    for need in [Need::Mount, Need::Strace, Need::Compiler] {
        if !machine.permits(need) {
            println!("SKIPPED: faults that need {need:?}, which this machine does not permit");
        }
    }
}

/// Everything that runs share.
pub struct Laboratory {
    binary: PathBuf,
    machine: Machine,
    folder: PathBuf,
    postgres: Arc<Mutex<Postgres>>,
    runs: usize,
    words: String,
    keep: bool,
}

impl Laboratory {
    async fn open(arguments: &Arguments, machine: &Machine) -> anyhow::Result<Self> {
        let binary = match &arguments.binary {
            Some(binary) => binary.clone(),
            None => std::env::current_exe()?.with_file_name("flash-sale"),
        };
        let binary = std::path::absolute(binary)?;
        let there = binary.try_exists()?;
        anyhow::ensure!(there, "{} is missing: cargo build --bin flash-sale", binary.display());
        let postgres = Postgres::start(binary.clone()).await?;
        Ok(Self {
            binary,
            machine: machine.clone(),
            folder: arguments.logs(),
            postgres: Arc::new(Mutex::new(postgres)),
            runs: 0,
            words: arguments.words() + &less(&arguments.without, arguments.clients),
            keep: arguments.keep,
        })
    }

    /// Runs a plan, and prints what was found.
    pub async fn try_out(&mut self, plan: &Plan) -> anyhow::Result<Line> {
        let began = Instant::now();
        self.runs += 1;
        let folder = self.folder.join(format!("{}_{}", plan.seed, self.runs));
        let outcome = run(plan, &folder, &self.binary, &self.machine, &self.postgres)
            .await
            .with_context(|| format!("seed {}; logs are in {}", plan.seed, folder.display()))?;
        let line = Line::of(plan, &outcome, began.elapsed());
        println!("{line}");
        if !outcome.verdict.holds() {
            self.tell(plan, &outcome);
        } else if !self.keep {
            let _ = std::fs::remove_dir_all(&folder);
        }
        let _ = write_history(&folder.join("history.txt"), &outcome);
        for lost in &outcome.verdict.lost_with_process {
            println!("    lost with Redis and the process that promised it: {lost}");
        }
        Ok(line)
    }

    /// A failure: plan, remarks, broken invariants, and the way to repeat it.
    fn tell(&self, plan: &Plan, outcome: &Outcome) {
        const SHOWN_MAX: usize = 12;
        print!("{plan}");
        for note in &outcome.notes {
            println!("    {note}");
        }
        for recovery in &outcome.evidence.recoveries {
            println!("    {recovery:?}");
        }
        let broken = &outcome.verdict.broken;
        for broken in broken.iter().take(SHOWN_MAX) {
            println!("    {broken}");
        }
        println!("    {} in all; logs are in {}", broken.len(), outcome.folder.display());
        println!("    again: make explore ARGS=\"--seed {}{}\"", plan.seed, self.words);
    }
}

fn write_history(path: &Path, outcome: &Outcome) -> std::io::Result<()> {
    let evidence = &outcome.evidence;
    let mut text = format!("{}\n", evidence.plan);
    for note in &outcome.notes {
        text += &format!("{note}\n");
    }
    text += &format!("{:#?}\n{:#?}\n", evidence.losses, evidence.silences);
    text += &format!("{:#?}\n", evidence.recoveries);
    text += &format!("{:#?}\n{:#?}\n", evidence.lives, evidence.changes);
    for event in &evidence.history {
        text += &format!("{event:?}\n");
    }
    for row in &evidence.rows {
        text += &format!("{row:?}\n");
    }
    for letter in &evidence.letters {
        text += &format!("{letter:?}\n");
    }
    for back in &evidence.returns {
        text += &format!("{back:?}\n");
    }
    text += &format!("{:#?}\n", evidence.sales);
    for broken in &outcome.verdict.broken {
        text += &format!("{broken}\n");
    }
    std::fs::write(path, text)
}
