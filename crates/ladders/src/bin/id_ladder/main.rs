//! How to number orders: each way of the tutorials, with what a clock, a time zone, a lost store and a competitor do to it.
//! The essay to it is `docs/ids.md`.
//!
//! Ends with an exit code other than 0 if the essay says something else.

#![warn(clippy::unwrap_used)]

mod facts;
mod figures;
mod generator;
mod snowflake;

use std::path::PathBuf;

use clap::Parser;
use ladders::essay::Essay;
use ladders::servers::Servers;
use private_servers::Sync;
use sqlx::PgPool;

use crate::facts::Stores;

/// Number orders in every way of the tutorials, on a Redis and a Postgres of its own
#[derive(Parser)]
struct Arguments {
    /// Look at the facts only, and compare them with the essay in this file
    #[arg(long, value_name = "ESSAY", conflicts_with = "write")]
    check: Option<PathBuf>,
    /// Look at the facts only
    #[arg(long, conflicts_with_all = ["check", "write"])]
    facts: bool,
    /// Write facts and figures into the essay in this file
    #[arg(long, value_name = "ESSAY")]
    write: Option<PathBuf>,
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
    let making = figures::making(&stores).await?;
    let pool = PgPool::connect(servers.database_url()).await?;
    let storing = figures::storing(&pool).await?;
    println!("\n{making}\n{storing}");
    if let Some(path) = &arguments.write {
        let mut essay = Essay::open(path)?;
        essay.put("facts", &facts)?;
        essay.put("making", &making)?;
        essay.put("storing", &storing)?;
        essay.save()?;
    }
    Ok(())
}
