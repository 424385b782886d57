//! Everything that runs share, and the report of one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use tokio::sync::Mutex;

use super::arguments::{Arguments, less};
use super::report::Line;
use crate::plan::Plan;
use crate::run::{Outcome, run};
use crate::world::{Machine, Postgres};

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
    /// Starts what the runs share.
    pub async fn open(arguments: &Arguments, machine: &Machine) -> anyhow::Result<Self> {
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
