//! How to keep a coupon in a cache: each design of the tutorials, run and broken on a Redis and a Postgres of its own. The
//! essay to it is `docs/cache.md`.
//!
//! Ends with an exit code other than 0 if the essay says something else.

mod hot_coupon;
mod rungs;
mod shelf;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use ladders::essay::{Essay, figure, provenance, table};
use ladders::plot::{self, Bar};
use ladders::servers::Servers;
use private_servers::Sync;

use crate::rungs::{RUNGS, Rung};
use crate::shelf::{Facts, Figures, Shelf, Size};

/// The plot, beside the essay.
const PLOT: &str = "cache.svg";

/// The size at which the facts are found.
const SMALL: Size = Size {
    coupons: 1_000,
    readers: 100,
    crowds: 1,
    made_up: 1_000,
    copies: 200,
    changes: 1,
    until: None,
};
const FULL: Size = Size {
    coupons: 100_000,
    readers: 1_000,
    crowds: 20,
    made_up: 100_000,
    copies: 20_000,
    changes: 1_000,
    until: Some(Duration::from_secs(20)),
};

/// Keep coupons in every cache of the tutorials, on a Redis and a Postgres of its own
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
    Play { redis_url: String, database_url: String },
}

#[derive(Args)]
struct Climb {
    /// Look at the facts only, and compare them with the essay in this file
    #[arg(long, value_name = "ESSAY", conflicts_with_all = ["write", "facts", "full"])]
    check: Option<PathBuf>,
    /// Look at the facts only
    #[arg(long, conflicts_with_all = ["write", "full"])]
    facts: bool,
    /// Write facts and figures into the essay in this file, and the plot beside it
    #[arg(long, value_name = "ESSAY")]
    write: Option<PathBuf>,
    /// Climb a second time, with crowds of 1,000 readers and 100,000 made-up ids; a rung is cut at 20 s
    #[arg(long)]
    full: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(Play::Play { redis_url, database_url }) = arguments.play {
        return hot_coupon::play(&redis_url, &database_url).await;
    }
    let servers = Servers::start(Sync::Off).await?;
    let climbed = climb(&arguments.climb, &servers).await;
    servers.strike().await?;
    climbed
}

async fn climb(arguments: &Climb, servers: &Servers) -> anyhow::Result<()> {
    let all = outcomes(servers, SMALL).await?;
    let facts = facts_table(&all);
    if let Some(path) = &arguments.check {
        Essay::open(path)?.check("facts", &facts)?;
        println!("{} says the same", path.display());
        return Ok(());
    }
    if arguments.facts {
        return Ok(());
    }
    let figures = figures_table(&all);
    let hot_coupon = hot_coupon::measure(servers).await?;
    println!("\n{facts}\n{figures}\n{hot_coupon}");
    let place = match &arguments.write {
        Some(path) => path.with_file_name(PLOT),
        None => std::env::temp_dir().join(PLOT),
    };
    std::fs::write(&place, bars(&all)?)
        .with_context(|| format!("{} can't be written", place.display()))?;
    println!("the plot is {}", place.display());
    let mut parts = vec![("facts", facts), ("figures", figures), ("hot coupon", hot_coupon)];
    if arguments.full {
        let full = full_table(&outcomes(servers, FULL).await?);
        println!("\n{full}");
        parts.push(("full figures", full));
    }
    if let Some(path) = &arguments.write {
        let mut essay = Essay::open(path)?;
        for (place, part) in &parts {
            essay.put(place, part)?;
        }
        essay.save()?;
    }
    Ok(())
}

type Outcome = (Rung, Facts, Figures);

async fn outcomes(servers: &Servers, size: Size) -> anyhow::Result<Vec<Outcome>> {
    let mut all = Vec::new();
    for rung in RUNGS {
        let shelf = Shelf::set(servers, size).await?;
        let (facts, figures) = rungs::climb(&rung, &shelf).await.context(rung.title)?;
        let Facts { reads, queries, old, keys } = &facts;
        println!(
            "{:>3}. {}: {reads} reads, {queries} queries, {old} wrong answers, {keys} keys",
            rung.number,
            titled(&rung, &figures)
        );
        all.push((rung, facts, figures));
    }
    Ok(all)
}

/// The rung's title, marked if the rung was cut.
fn titled(rung: &Rung, figures: &Figures) -> String {
    match figures.cut {
        true => format!("{} (not finished)", rung.title),
        false => rung.title.to_owned(),
    }
}

fn facts_table(all: &[Outcome]) -> String {
    let head = ["rung", "design", "in the tutorials", "reads", "queries", "wrong answers", "keys"];
    let row = |(rung, facts, _): &Outcome| {
        let Facts { reads, queries, old, keys } = facts;
        let old = if *old == 0 { "0".to_owned() } else { format!("**{old}**") };
        let names = [rung.number, rung.title, rung.term].map(ToOwned::to_owned);
        let numbers = [reads.to_string(), queries.to_string(), old, keys.to_string()];
        names.into_iter().chain(numbers).collect()
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    table(&head, &rows)
}

/// Times of the reads; readers of a crowd wait for each other at the worst moment, which is part of them.
fn figures_table(all: &[Outcome]) -> String {
    let head = ["rung", "design", "mean, ms", "p50, ms", "p99, ms"];
    let row = |(rung, _, figures): &Outcome| {
        let Figures { mean_ms, p50_ms, p99_ms, .. } = figures;
        let times = [mean_ms, p50_ms, p99_ms].map(|ms| figure(*ms));
        [rung.number, rung.title].map(ToOwned::to_owned).into_iter().chain(times).collect()
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    format!("{}\n\n{}", provenance(), table(&head, &rows))
}

/// Counts and times of a climb in which each rung is repeated.
fn full_table(all: &[Outcome]) -> String {
    let head = [
        "rung",
        "design",
        "reads",
        "queries",
        "wrong answers",
        "keys",
        "mean, ms",
        "p50, ms",
        "p99, ms",
    ];
    let row = |(rung, facts, figures): &Outcome| {
        let Facts { reads, queries, old, keys } = *facts;
        let Figures { mean_ms, p50_ms, p99_ms, .. } = *figures;
        let counts = [reads, queries, old, keys].map(|count| count.to_string());
        let names = [rung.number.to_owned(), titled(rung, figures)].into_iter();
        names.chain(counts).chain([mean_ms, p50_ms, p99_ms].map(figure)).collect()
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    format!("{}\n\n{}", provenance(), table(&head, &rows))
}

/// Queries of each rung for 1,000 reads.
fn bars(all: &[Outcome]) -> anyhow::Result<String> {
    let bar = |(rung, facts, _): &Outcome| {
        let queries = facts.queries as f64 * 1e3 / facts.reads as f64;
        let name = format!("{:>3}  {}", rung.number, rung.title);
        // A bar has a length.
        Bar {
            name,
            value: queries.max(0.5),
            label: format!("{queries:.0}"),
            is_right: facts.old == 0,
        }
    };
    let bars: Vec<Bar> = all.iter().map(bar).collect();
    plot::svg("Queries for 1,000 reads (logarithmic); orange: a wrong answer", &bars)
}
