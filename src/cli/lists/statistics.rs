//! `flash-sale statistics`: claims, orders and the sequence of a day.

use std::io::Write;
use std::sync::Arc;

use clap::Args;

use crate::base::clock::Clock;
use crate::base::config::{InvalidConfig, StoreConfig};
use crate::base::telemetry::Metrics;
use crate::cli::lists::output::print_all;
use crate::cli::stores::{As, OpenStores};
use crate::kit::id::{Ceilings, IdGenerator};
use crate::sale::Stores;
use crate::sale::statistics::{Day, DayStatistics, InvalidDay, Statistics};

#[derive(Args)]
pub struct StatisticsArguments {
    /// Day in UTC, like 2026-11-27; today if not given
    #[arg(long)]
    day: Option<Day>,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub stores: StoreConfig,
}

/// Prints the statistics of a day, on the servers of a running service if there is one.
pub async fn run(arguments: &StatisticsArguments) -> anyhow::Result<()> {
    let opened = OpenStores::open(&arguments.stores, As::Guest).await?;
    let done = run_on(arguments, &opened.stores).await;
    let closed = opened.close().await;
    done.and(closed)
}

async fn run_on(arguments: &StatisticsArguments, stores: &Stores) -> anyhow::Result<()> {
    let ceilings = Ceilings::new(stores.pool.clone(), arguments.stores.database_timeout());
    // It hands out no id.
    let ids = IdGenerator::new(stores.keys.order_sequence(), 1, Clock::System, ceilings);
    let metrics = Arc::new(Metrics::new(std::iter::empty(), std::iter::empty())?);
    let statistics = Statistics::new(stores, Arc::new(ids), metrics, Clock::System);
    let day = arguments.day.unwrap_or_else(|| statistics.today());
    let found = statistics.of(day).await?;
    let found = found.ok_or_else(|| InvalidConfig::new(InvalidDay.to_string()))?;
    // This process has answered no claim.
    let found = DayStatistics { process: None, ..found };
    print_all(&[found], arguments.json, "", |out, day| print(out, day))
}

fn print(out: &mut impl Write, statistics: &DayStatistics) -> std::io::Result<()> {
    let DayStatistics { day, is_whole, claims, orders, dead_letters, sequence, .. } = statistics;
    writeln!(out, "{day} (UTC): {claims} accepted claims have reached Postgres")?;
    if !is_whole {
        writeln!(out, "  orders may be missing: their month may have left the history")?;
    }
    let orders: Vec<String> = orders.iter().map(|(status, n)| format!("{n} {status}")).collect();
    let orders = if orders.is_empty() { "none".to_owned() } else { orders.join(", ") };
    writeln!(out, "  orders: {orders}")?;
    writeln!(out, "  dead letters that are no orders: {dead_letters}")?;
    let number = |of: Option<i64>| of.map_or_else(|| "unknown".to_owned(), |of| of.to_string());
    let [most, taken, granted] =
        [sequence.orders_at_most, sequence.taken, sequence.granted].map(number);
    writeln!(
        out,
        "  at most {most} orders, by the sequence: {taken} numbers taken, {granted} granted"
    )?;
    writeln!(out, "  (no count: {})", sequence.reason)?;
    writeln!(
        out,
        "  refusals are counted by each process: flash_sale_claims_total on its page of metrics"
    )
}
