//! How to sell the last unit once: each design of the tutorials, run, broken and measured on private servers. The essay to
//! it is `docs/ladder.md`.
//!
//! Ends with an exit code other than 0 if a flaw doesn't show, or the essay says something else.

#![warn(clippy::unwrap_used)]

mod actor;
mod by_engine;
mod child;
mod counters;
mod crowd;
mod database;
mod design;
mod queue;
mod report;
mod rung;
mod scene;
mod service;
mod stage;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, Parser, Subcommand};
use futures_util::future::try_join_all;
use ladders::engine;
use ladders::essay::Essay;
use ladders::servers::Servers;
use private_servers::Sync;

use crate::report::{facts_table, figures_table};
use crate::rung::{RUNGS, Rung, play_design};
use crate::stage::{Crowd, Facts, Figures, Stage};

/// Requests at the same time.
const AT_ONCE: usize = 80;
/// Stages on which facts are looked for at the same time.
const STAGES: usize = 3;
/// Longest time of a rung.
const CUT: Duration = Duration::from_secs(20);
const SMALL: Crowd = Crowd { users: 1_000, units: 200, at_once: AT_ONCE, until: CUT };
/// Sell 200 units to 1,000 users by every design of the tutorials, on a Redis and a Postgres of its own
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    play: Option<Play>,
    #[command(flatten)]
    climb: Climb,
}

#[derive(Subcommand)]
enum Play {
    /// A process of the ladder's own
    #[command(hide = true)]
    Play { task: String },
}

#[derive(Args)]
struct Climb {
    /// Look at the facts only, and compare them with the essay in this file
    #[arg(long, value_name = "ESSAY", conflicts_with = "write")]
    check: Option<PathBuf>,
    /// Look at the facts only
    #[arg(long, conflicts_with = "check")]
    facts: bool,
    /// Write facts and figures into the essay in this file
    #[arg(long, value_name = "ESSAY", conflicts_with = "only")]
    write: Option<PathBuf>,
    /// Climb only rungs with these numbers, as in 5,11b
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS", conflicts_with = "check")]
    only: Vec<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(Play::Play { task }) = arguments.play {
        return play_design(serde_json::from_str(&task)?).await;
    }
    climb(&arguments.climb).await
}

async fn climb(arguments: &Climb) -> anyhow::Result<()> {
    let mut rungs = chosen(&arguments.only)?;
    let without_engine: Vec<Rung> = match engine::program() {
        Some(_) => Vec::new(),
        None => rungs.extract_if(.., |rung| rung.by_engine).collect(),
    };
    for rung in &without_engine {
        println!("{:>3}. {}: not tried, run scripts/setup nats", rung.number, rung.title);
    }
    let facts = on_servers(Sync::Off, async |servers| facts_of(servers, &rungs).await).await?;
    if let Some(path) = &arguments.check {
        let mut essay = Essay::open(path)?;
        for rung in without_engine {
            essay.leave_out("facts", &report::start_of_row(&rung))?;
        }
        essay.check("facts", &facts_table(&facts))?;
        println!("{} says the same", path.display());
        return Ok(());
    }
    ensure!(
        arguments.write.is_none() || without_engine.is_empty(),
        "the essay has all rungs: run scripts/setup nats"
    );
    let mut essay = arguments.write.as_deref().map(Essay::open).transpose()?;
    if let Some(essay) = &mut essay {
        essay.put("facts", &facts_table(&facts))?;
        essay.save()?;
    }
    if arguments.facts {
        return Ok(());
    }
    let figures = on_servers(Sync::Durable, async |servers| {
        let stage = Stage::durable(servers).await?;
        figures_of(&stage, &rungs, servers).await
    })
    .await?;
    let figures = figures_table(&figures, SMALL);
    println!("\n{}\n{figures}", facts_table(&facts));
    if let Some(essay) = &mut essay {
        essay.put("figures", &figures)?;
        essay.save()?;
    }
    Ok(())
}

fn chosen(only: &[String]) -> anyhow::Result<Vec<Rung>> {
    let of = |number: &String| {
        let found = RUNGS.into_iter().find(|rung| rung.number == number);
        found.with_context(|| {
            format!(
                "there is no rung {number}; the first is 1, the last {}",
                RUNGS[RUNGS.len() - 1].number
            )
        })
    };
    if only.is_empty() { Ok(RUNGS.to_vec()) } else { only.iter().map(of).collect() }
}

/// The servers are stopped however the work ends.
async fn on_servers<T>(
    sync: Sync,
    work: impl AsyncFnOnce(&Servers) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let servers = Servers::start(sync).await?;
    let done = work(&servers).await;
    servers.strike().await?;
    done
}

/// Facts of all rungs. Each stage takes the next rung that no other has taken: while one waits, others work.
async fn facts_of(servers: &Servers, rungs: &[Rung]) -> anyhow::Result<Vec<(Rung, Facts)>> {
    let next = AtomicUsize::new(0);
    let stages = (0..STAGES.min(rungs.len())).map(async |number| {
        let stage = Stage::beside_others(servers, number).await?;
        facts_on(&stage, rungs, &next).await
    });
    let climbed = try_join_all(stages).await?;
    let mut all: Vec<(usize, Facts)> = climbed.into_iter().flatten().collect();
    all.sort_by_key(|(place, _)| *place);
    Ok(all.into_iter().map(|(place, facts)| (rungs[place], facts)).collect())
}

async fn facts_on(
    stage: &Stage,
    rungs: &[Rung],
    next: &AtomicUsize,
) -> anyhow::Result<Vec<(usize, Facts)>> {
    let mut own = Vec::new();
    loop {
        let place = next.fetch_add(1, Ordering::Relaxed);
        let Some(rung) = rungs.get(place) else { return Ok(own) };
        let facts = stage.facts(rung, SMALL).await.with_context(|| rung.title)?;
        println!("{:>3}. {}: {}", rung.number, rung.title, report::sentence(&facts));
        own.push((place, facts));
    }
}

async fn figures_of(
    stage: &Stage,
    rungs: &[Rung],
    servers: &Servers,
) -> anyhow::Result<Vec<(Rung, Figures)>> {
    let mut all = Vec::new();
    for rung in rungs {
        let figures = stage.figures(rung, SMALL, servers).await.with_context(|| rung.title)?;
        let Figures { answers, .. } = &figures;
        println!(
            "{:>3}. {}: {:.0} requests/s, p99 {:.1} ms",
            rung.number,
            rung.title,
            report::rate(answers),
            answers.p99_ms
        );
        all.push((*rung, figures));
    }
    Ok(all)
}
