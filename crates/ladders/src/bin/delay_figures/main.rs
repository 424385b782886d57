//! Orders that are not paid in time: how late this service expires them, for which cost, and what a SIGKILL loses. The essay
//! to it is `docs/delay.md`.
//!
//! The service runs in a process of its own, through its library, with a short window of payment. Its crowd claims all units
//! and pays none. What became of the orders is looked up in the stores.

mod timers;

use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, Subcommand};
use ladders::essay::{Essay, figure, provenance, table};
use ladders::servers::Servers;
use private_servers::Sync;

use crate::timers::{Cost, Timers, WINDOW_S};

/// Orders of a run.
const ORDERS: i64 = 2_000;

/// Let 2,000 orders expire, on a Redis and a Postgres of its own
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    play: Option<Play>,
    /// Write the figures into the essay in this file
    #[arg(long, value_name = "ESSAY")]
    write: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Play {
    /// A process of this program's own
    #[command(hide = true)]
    Play { redis_url: String, database_url: String, orders: i64 },
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(Play::Play { redis_url, database_url, orders }) = arguments.play {
        return timers::play(&redis_url, &database_url, orders).await;
    }
    let servers = Servers::start(Sync::Durable).await?;
    let figures = figures(&servers).await;
    servers.strike().await?;
    let figures = figures?;
    println!("\n{figures}");
    if let Some(path) = &arguments.write {
        let mut essay = Essay::open(path)?;
        essay.put("figures", &figures)?;
        essay.save()?;
    }
    Ok(())
}

async fn figures(servers: &Servers) -> anyhow::Result<String> {
    let timers = Timers::new(servers).await?;
    println!("{ORDERS} orders are claimed, and expire ...");
    let cost = timers.expire(ORDERS).await.context("the run without a fault")?;
    println!("{ORDERS} orders are claimed, and the process is killed while they expire ...");
    let [orders, units] = timers.kill(ORDERS).await.context("the run with a SIGKILL")?;
    let Cost { late_ms: [p50, p99, most], cpu, index_bytes } = cost;
    let [program, redis, postgres] = cpu.map(figure);
    let rows = [
        ("lateness, p50", format!("{} ms", figure(p50))),
        ("lateness, p99", format!("{} ms", figure(p99))),
        ("lateness, most", format!("{} ms", figure(most))),
        ("CPU for an order: the service", format!("{program} µs")),
        ("CPU for an order: Redis", format!("{redis} µs")),
        ("CPU for an order: Postgres", format!("{postgres} µs")),
        ("an order that waits, in `orders_due`", format!("{} bytes", figure(index_bytes))),
        ("lost by a SIGKILL: orders that never expire", orders.to_string()),
        ("lost by a SIGKILL: units that never come back", units.to_string()),
    ];
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    let table = table(&["of the pass", "measured"], &rows);
    Ok(format!(
        "{}\n{} orders, each due {WINDOW_S} s after its claim.\n\n{table}",
        provenance(),
        figure(ORDERS as f64)
    ))
}
