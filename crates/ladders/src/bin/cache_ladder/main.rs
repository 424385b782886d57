//! How to keep a coupon in a cache: each design of the tutorials, run and broken on a Redis and a Postgres of its own. The
//! essay to it is `docs/cache.md`.
//!
//! Ends with an exit code other than 0 if the essay says something else.

#![warn(clippy::unwrap_used)]

mod rungs;
mod shelf;

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use ladders::essay::{Essay, figure, provenance, table};
use ladders::servers::Servers;
use private_servers::Sync;

use crate::rungs::{RUNGS, Rung};
use crate::shelf::{Facts, Figures, Shelf};

/// Keep coupons in every cache of the tutorials, on a Redis and a Postgres of its own
#[derive(Parser)]
struct Arguments {
    /// Look at the facts only, and compare them with the essay in this file
    #[arg(long, value_name = "ESSAY", conflicts_with_all = ["write", "facts"])]
    check: Option<PathBuf>,
    /// Look at the facts only
    #[arg(long, conflicts_with = "write")]
    facts: bool,
    /// Write facts and figures into the essay in this file
    #[arg(long, value_name = "ESSAY")]
    write: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let servers = Servers::start(Sync::Off).await?;
    let climbed = climb(&arguments, &servers).await;
    servers.strike().await?;
    climbed
}

async fn climb(arguments: &Arguments, servers: &Servers) -> anyhow::Result<()> {
    let all = outcomes(servers).await?;
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
    println!("\n{facts}\n{figures}");
    if let Some(path) = &arguments.write {
        let mut essay = Essay::open(path)?;
        essay.put("facts", &facts)?;
        essay.put("figures", &figures)?;
        essay.save()?;
    }
    Ok(())
}

type Outcome = (Rung, Facts, Figures);

async fn outcomes(servers: &Servers) -> anyhow::Result<Vec<Outcome>> {
    let mut all = Vec::new();
    for rung in RUNGS {
        let shelf = Shelf::set(servers).await?;
        let (facts, figures) = rungs::climb(&rung, &shelf).await.context(rung.title)?;
        let Facts { reads, queries, old, keys } = &facts;
        println!(
            "{:>3}. {}: {reads} reads, {queries} queries, {old} wrong answers, {keys} keys",
            rung.number, rung.title
        );
        all.push((rung, facts, figures));
    }
    Ok(all)
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
        let Figures { mean_ms, p50_ms, p99_ms } = figures;
        let times = [mean_ms, p50_ms, p99_ms].map(|ms| figure(*ms));
        [rung.number, rung.title].map(ToOwned::to_owned).into_iter().chain(times).collect()
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    format!("{}\n\n{}", provenance(), table(&head, &rows))
}
