//! How to sell the last unit once: each design of the tutorials, run, broken and measured on private servers. The essay to
//! it is `docs/ladder.md`.
//!
//! Ends with an exit code other than 0 if a flaw doesn't show, or the essay says something else.

mod actor;
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
mod waiting;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use futures_util::future::try_join_all;
use ladders::essay::Essay;
use ladders::servers::Servers;
use private_servers::Sync;

use crate::report::{facts_table, figures_table, plot};
use crate::rung::{RUNGS, Rung, play_design};
use crate::stage::{Crowd, Facts, Figures, Stage};
use crate::waiting::Bytes;

/// Requests at the same time.
const AT_ONCE: usize = 80;
/// Stages on which facts are looked for at the same time.
const STAGES: usize = 3;
/// Longest time of a rung.
const CUT: Duration = Duration::from_secs(20);
/// Longer than any rung that is not cut.
const HOUR: Duration = Duration::from_secs(3_600);
const SMALL: Crowd = Crowd { users: 1_000, units: 200, at_once: AT_ONCE, until: CUT };
/// The crowd whose orders wait while their bytes are counted.
const WAITING: Crowd = Crowd { users: 6_250, units: 5_000, at_once: AT_ONCE, until: HOUR };
const FULL: Crowd = Crowd { users: 20_000, units: 5_000, at_once: AT_ONCE, until: CUT };
/// The plot of the small crowd, beside the essay.
const PLOT: &str = "ladder.svg";
/// The plot of the large crowd.
const PLOT_FULL: &str = "ladder-full.svg";
/// The page of what follows from the figures, beside the essay.
const CAPACITY: &str = "capacity.md";
/// Time for counting syncs.
const SYNCING: Duration = Duration::from_secs(1);

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
    #[arg(long, value_name = "ESSAY", conflicts_with_all = ["write", "full"])]
    check: Option<PathBuf>,
    /// Look at the facts only
    #[arg(long, conflicts_with_all = ["check", "full"])]
    facts: bool,
    /// Write facts and figures into the essay in this file, and the plot beside it
    #[arg(long, value_name = "ESSAY", conflicts_with = "only")]
    write: Option<PathBuf>,
    /// Measure with 20,000 users for 5,000 units
    #[arg(long)]
    full: bool,
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
    let rungs = chosen(&arguments.only)?;
    let facts = on_servers(Sync::Off, async |servers| facts_of(servers, &rungs).await).await?;
    if let Some(path) = &arguments.check {
        Essay::open(path)?.check("facts", &facts_table(&facts))?;
        println!("{} says the same", path.display());
        return Ok(());
    }
    let mut essay = arguments.write.as_deref().map(Essay::open).transpose()?;
    if let Some(essay) = &mut essay {
        essay.put("facts", &facts_table(&facts))?;
        essay.save()?;
    }
    if arguments.facts {
        return Ok(());
    }
    let crowd = if arguments.full { FULL } else { SMALL };
    let (figures, bytes) = on_servers(Sync::Durable, async |servers| {
        let stage = &Stage::durable(servers).await?;
        let figures = figures_of(stage, &rungs, crowd, servers).await?;
        let service = RUNGS.iter().find(|rung| rung.key == "library");
        let bytes = match service.filter(|_| arguments.write.is_some() && !arguments.full) {
            Some(service) => Some(waiting::bytes(stage, service, WAITING).await?),
            None => None,
        };
        Ok((figures, bytes))
    })
    .await?;
    println!("\n{}\n{}", facts_table(&facts), figures_table(&figures, crowd));
    let plot_name = if arguments.full { PLOT_FULL } else { PLOT };
    let place = match &arguments.write {
        Some(path) => path.with_file_name(plot_name),
        None => std::env::temp_dir().join(plot_name),
    };
    std::fs::write(&place, plot(&figures, &facts)?)
        .with_context(|| format!("{} can't be written", place.display()))?;
    println!("the plot is {}", place.display());
    if let (Some(essay), Some(path)) = (&mut essay, &arguments.write) {
        let shown = format!("![Requests a second of each rung]({plot_name})\n\n");
        let shown = shown + &figures_table(&figures, crowd);
        match &bytes {
            None => essay.put("full figures", &shown)?,
            Some(bytes) => {
                essay.put("figures", &shown)?;
                essay.put("tutorial", &report::tutorial(&figures))?;
                write_capacity(&path.with_file_name(CAPACITY), &figures, bytes)?;
            }
        }
        essay.save()?;
    }
    Ok(())
}

fn write_capacity(path: &Path, figures: &[(Rung, Figures)], bytes: &Bytes) -> anyhow::Result<()> {
    let mut page = Essay::open(path)?;
    page.put("little", &report::little(figures, SMALL))?;
    page.put("limits", &report::limits(figures, syncs_per_second()?))?;
    page.put("bytes", &report::bytes(bytes))?;
    page.save()
}

/// Syncs of one small file, one after the other.
fn syncs_per_second() -> anyhow::Result<f64> {
    let path = std::env::temp_dir().join(format!("fs-ladder-sync-{}", std::process::id()));
    let mut file = std::fs::File::create(&path)?;
    let began = Instant::now();
    let mut syncs = 0;
    while began.elapsed() < SYNCING {
        file.write_all(&[0; 512])?;
        file.sync_data()?;
        syncs += 1;
    }
    let seconds = began.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(f64::from(syncs) / seconds)
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
    crowd: Crowd,
    servers: &Servers,
) -> anyhow::Result<Vec<(Rung, Figures)>> {
    let mut all = Vec::new();
    for rung in rungs {
        let figures = stage.figures(rung, crowd, servers).await.with_context(|| rung.title)?;
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
