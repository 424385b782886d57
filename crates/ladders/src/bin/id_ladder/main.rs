//! How to number orders: each way of the tutorials, with what a clock, a time zone, a lost store and a competitor do to it.
//! The essay to it is `docs/ids.md`.
//!
//! Ends with an exit code other than 0 if the essay says something else.

mod facts;
mod figures;
mod generator;
mod snowflake;

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use ladders::essay::Essay;
use ladders::servers::Servers;
use private_servers::Sync;
use sqlx::PgPool;

use crate::facts::Stores;

/// The plot, beside the essay.
const PLOT: &str = "ids.svg";
const ROWS: i64 = 200_000;
const ROWS_FULL: i64 = 2_000_000;

/// Number orders in every way of the tutorials, on a Redis and a Postgres of its own
#[derive(Parser)]
struct Arguments {
    /// Look at the facts only, and compare them with the essay in this file
    #[arg(long, value_name = "ESSAY", conflicts_with_all = ["write", "full"])]
    check: Option<PathBuf>,
    /// Look at the facts only
    #[arg(long, conflicts_with_all = ["check", "write", "full"])]
    facts: bool,
    /// Write facts and figures into the essay in this file, and the plot beside it
    #[arg(long, value_name = "ESSAY")]
    write: Option<PathBuf>,
    /// Store 2,000,000 rows of each kind, for 20 s at most
    #[arg(long)]
    full: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let sync = if arguments.check.is_some() || arguments.facts { Sync::Off } else { Sync::Durable };
    let servers = Servers::start(sync).await?;
    let climbed = climb(&arguments, &servers).await;
    servers.strike().await?;
    climbed
}

async fn climb(arguments: &Arguments, servers: &Servers) -> anyhow::Result<()> {
    let stores = Stores::open(servers).await?;
    let facts = facts::of_all(&stores).await?;
    println!("{facts}");
    if let Some(path) = &arguments.check {
        Essay::open(path)?.check("facts", &facts)?;
        println!("{} says the same", path.display());
        return Ok(());
    }
    if arguments.facts {
        return Ok(());
    }
    let (making, plot) = figures::making(&stores, &facts).await?;
    let pool = PgPool::connect(servers.database_url()).await?;
    let rows = if arguments.full { ROWS_FULL } else { ROWS };
    let storing = figures::storing(&pool, rows).await?;
    println!("\n{making}\n{storing}");
    let place = match &arguments.write {
        Some(path) => path.with_file_name(PLOT),
        None => std::env::temp_dir().join(PLOT),
    };
    std::fs::write(&place, plot)
        .with_context(|| format!("{} can't be written", place.display()))?;
    println!("the plot is {}", place.display());
    if let Some(path) = &arguments.write {
        let mut essay = Essay::open(path)?;
        essay.put("facts", &facts)?;
        let shown = format!("![Ids a second of each kind]({PLOT})\n\n");
        essay.put("making", &(shown + &making))?;
        essay.put(if arguments.full { "full storing" } else { "storing" }, &storing)?;
        essay.save()?;
    }
    Ok(())
}
