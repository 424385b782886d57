//! Everything that the runs of a job share, and the report of one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use tokio::sync::Mutex;

use super::arguments::Arguments;
use super::report::Line;
use crate::plan::Plan;
use crate::run::{Outcome, run};
use crate::world::{Machine, Postgres};

/// Everything that the runs of a job share.
pub struct Laboratory {
    binary: PathBuf,
    machine: Machine,
    folder: PathBuf,
    postgres: Arc<Mutex<Postgres>>,
    runs: usize,
    changes: String,
    keep: bool,
}

impl Laboratory {
    /// Starts what the runs of this job share: a Postgres, which a fault may kill.
    pub async fn open(arguments: &Arguments, machine: &Machine, job: u8) -> anyhow::Result<Self> {
        let binary = arguments.service()?;
        let there = binary.try_exists()?;
        anyhow::ensure!(there, "{} is missing: cargo build --bin flash-sale", binary.display());
        let postgres = Postgres::start(binary.clone(), job).await?;
        Ok(Self {
            binary,
            machine: machine.clone(),
            folder: arguments.logs(),
            postgres: Arc::new(Mutex::new(postgres)),
            runs: 0,
            changes: arguments.changes(),
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
        print!("{}", self.told(plan, &outcome, &line));
        if line.holds() && !self.keep {
            let _ = std::fs::remove_dir_all(&folder);
        } else {
            let _ = write_history(&folder.join("history.txt"), &outcome);
        }
        Ok(line)
    }

    /// The report in one piece, because other jobs print theirs. A failure has plan, remarks, broken invariants, and the
    /// way to repeat it.
    fn told(&self, plan: &Plan, outcome: &Outcome, line: &Line) -> String {
        const SHOWN_MAX: usize = 12;
        let mut text = format!("{line}\n");
        let verdict = &outcome.verdict;
        if !verdict.holds() {
            text += &plan.to_string();
            for note in &outcome.notes {
                text += &format!("    {note}\n");
            }
            for recovery in &outcome.evidence.recoveries {
                text += &format!("    {recovery:?}\n");
            }
            for broken in verdict.broken.iter().take(SHOWN_MAX) {
                text += &format!("    {broken}\n");
            }
            let (count, folder) = (verdict.broken.len(), outcome.folder.display());
            text += &format!("    {count} in all; logs are in {folder}\n");
            let changes = &self.changes;
            text += &format!("    again: make explore ARGS=\"--seed {}{changes}\"\n", plan.seed);
        }
        for lost in &verdict.lost_with_process {
            text += &format!("    lost with Redis and the process that promised it: {lost}\n");
        }
        text
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
