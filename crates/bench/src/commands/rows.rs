//! `flash-sale-bench rows`: Postgres's part of a win, by itself.
//!
//! A service is started for its Postgres, and writes nothing. The ways to write a batch, and the shapes of the table,
//! take turns: A, B, C, and C, B, A in the next round. No claim is made, so there is no verdict.

use std::collections::BTreeMap;

use super::binary;
use super::session::with_target;
use crate::arguments::client::ClientArguments;
use crate::arguments::rows::{RowsArguments, RowsPart, Way};
use crate::measure::bench::Bench;
use crate::measure::progress::Progress;
use crate::measure::rows::shapes::{AS_IT_IS, INSERTED};
use crate::measure::rows::table::{Cost, Table};
use crate::measure::rows::{large, moves};
use crate::report;
use crate::results::machine::Machine;
use crate::results::rows::{Inserts, RowsReport};
use crate::service::target::Target;
use flash_sale::base::shutdown::{Shutdown, StopRequests};

/// Roles of a service that is there for its Postgres.
const IDLE: &str = "--roles worker --admin-listen 127.0.0.1:0";
/// Rows in a batch, where only the shape of the table differs.
const BATCH: usize = 1_000;

/// Measures, prints, and writes what was asked for.
pub async fn run(arguments: RowsArguments, stop_requests: &mut StopRequests) -> anyhow::Result<()> {
    let binary = binary::of_service(arguments.binary.as_deref())?;
    let shutdown = Shutdown::default();
    let client = ClientArguments::closed(1, 5_000);
    let mut bench = Bench::new(client, Progress::new(1.0), shutdown.clone());
    bench.progress.say("starting a service for its Postgres");
    let starting = Target::start("", &binary, IDLE, &shutdown);
    let measured = with_target(&mut bench, starting, stop_requests, async |bench, target| {
        measure(&arguments, bench, target).await
    });
    let report = measured.await?;
    drop(bench);
    println!("{}", report::rows::of_rows(&report));
    if let Some(file) = &arguments.json {
        std::fs::write(file, serde_json::to_string_pretty(&report)?)?;
    }
    Ok(())
}

async fn measure(
    arguments: &RowsArguments,
    bench: &Bench,
    target: &Target,
) -> anyhow::Result<RowsReport> {
    let mut report = RowsReport::of(Machine::look(target).await?);
    for part in &arguments.parts {
        match part {
            RowsPart::Ways => report.ways = ways(arguments, bench, target).await?,
            RowsPart::Indexes => report.shapes = shapes(arguments, bench, target).await?,
            RowsPart::Moves => {
                bench.progress.say("moves from unpaid to paid");
                report.moves = moves::measure(target, arguments.rows).await?;
            }
            RowsPart::Large => {
                let say = |text: String| bench.progress.say(text);
                let RowsArguments { large_orders, rows, rounds, .. } = *arguments;
                let measured = large::measure(target, large_orders, rows, rounds, say).await?;
                report.large = Some(measured);
            }
        }
    }
    Ok(report)
}

/// Each way with each size of a batch, in an empty table.
async fn ways(
    arguments: &RowsArguments,
    bench: &Bench,
    target: &Target,
) -> anyhow::Result<Vec<Inserts>> {
    let mut table = Table::create(target, "ways", AS_IT_IS).await?;
    let mut costs: BTreeMap<(usize, usize), Vec<Cost>> = BTreeMap::new();
    let turns: Vec<(usize, usize)> = (0..arguments.batches.len())
        .flat_map(|batch| (0..arguments.ways.len()).map(move |way| (batch, way)))
        .collect();
    for round in 0..arguments.rounds {
        bench.progress.say(format!("ways to write, round {}", round + 1));
        for (batch, way) in in_turns(&turns, round) {
            table.empty().await?;
            let rows_in_batch = arguments.batches[batch] as usize;
            let cost = table.write(arguments.ways[way], arguments.rows, rows_in_batch).await?;
            costs.entry((batch, way)).or_default().push(cost);
        }
    }
    table.remove(target).await?;
    let named = costs.into_iter().map(|((batch, way), costs)| {
        Inserts::of(arguments.ways[way].name(), arguments.batches[batch], costs)
    });
    Ok(named.collect())
}

/// Each shape of the table, empty at the beginning of each slice.
async fn shapes(
    arguments: &RowsArguments,
    bench: &Bench,
    target: &Target,
) -> anyhow::Result<Vec<Inserts>> {
    let mut tables = Vec::new();
    for (at, shape) in INSERTED.into_iter().enumerate() {
        tables.push(Table::create(target, &format!("shape_{at}"), shape).await?);
    }
    let mut costs = vec![Vec::new(); tables.len()];
    let turns: Vec<usize> = (0..tables.len()).collect();
    for round in 0..arguments.rounds {
        bench.progress.say(format!("shapes of the table, round {}", round + 1));
        for at in in_turns(&turns, round) {
            tables[at].empty().await?;
            costs[at].push(tables[at].write(Way::UnnestInList, arguments.rows, BATCH).await?);
        }
    }
    for table in tables {
        table.remove(target).await?;
    }
    let named = INSERTED.into_iter().zip(costs);
    Ok(named.map(|(shape, costs)| Inserts::of(shape.name, BATCH as u32, costs)).collect())
}

/// Forth in even rounds, back in odd ones.
fn in_turns<T: Copy>(turns: &[T], round: u32) -> Vec<T> {
    match round.is_multiple_of(2) {
        true => turns.to_vec(),
        false => turns.iter().rev().copied().collect(),
    }
}
