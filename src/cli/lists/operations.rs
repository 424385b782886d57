//! `flash-sale operations`: all that waits for an operator.

use std::io::Write;
use std::sync::Arc;

use clap::Args;

use crate::base::config::StoreConfig;
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::Metrics;
use crate::cli::lists::output::print_all;
use crate::cli::stores::{As, OpenStores};
use crate::sale::Stores;
use crate::sale::operations::Operations;
use crate::sale::operations::matter::{Matter, MatterKind, Position, Step};
use crate::sale::order::moves::OrderMoves;
use crate::sale::postponed::Postponed;

#[derive(Args)]
pub struct OperationsArguments {
    /// Only matters of this kind
    #[arg(long, value_enum)]
    kind: Option<MatterKind>,
    /// Only what stands behind this place in the list, such as dead_letter-17
    #[arg(long)]
    behind: Option<Position>,
    /// At most this many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub stores: StoreConfig,
}

/// Lists open matters, on the servers of a running service if there is one.
pub async fn run(arguments: &OperationsArguments) -> anyhow::Result<()> {
    let opened = OpenStores::open(&arguments.stores, As::Guest).await?;
    let done = run_on(arguments, &opened.stores).await;
    let closed = opened.close().await;
    done.and(closed)
}

async fn run_on(arguments: &OperationsArguments, stores: &Stores) -> anyhow::Result<()> {
    let metrics = Metrics::new(std::iter::empty(), std::iter::empty())?;
    let postponed = Postponed::new(stores.pool.clone(), Arc::new(metrics));
    let moves = OrderMoves::new(stores.pool.clone(), Shutdown::default());
    let operations = Operations::new(stores.pool.clone(), &moves, &postponed);
    let OperationsArguments { kind, behind, limit, json, .. } = *arguments;
    let found = operations.list(kind, behind, limit).await?;
    print_all(&found, json, "Nothing waits for an operator.", |out, one| print(out, one))
}

fn print(out: &mut impl Write, matter: &Matter) -> std::io::Result<()> {
    let Matter { since, age_s, detail, harm, advice, steps, position, .. } = matter;
    writeln!(out, "{position}: {detail}")?;
    writeln!(out, "  since {since:.0}, for {age_s} s: {harm}")?;
    if let Some(advice) = advice {
        writeln!(out, "  {advice}")?;
    }
    for Step { effect, command, .. } in steps {
        writeln!(out, "  `{command}`: {effect}")?;
    }
    Ok(())
}
