//! `flash-sale postponed`: items that passes could not deal with and try again, and those that have succeeded since.

use std::io::Write;
use std::sync::Arc;

use anyhow::bail;
use clap::{Args, Subcommand};

use crate::base::config::StoreConfig;
use crate::base::telemetry::Metrics;
use crate::cli::lists::output::print_all;
use crate::cli::stores::{As, OpenStores};
use crate::sale::Stores;
use crate::sale::audit::Actor;
use crate::sale::ids::PostponedId;
use crate::sale::pass::Pass;
use crate::sale::postponed::{Postponed, PostponedItem, PostponedPart};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct PostponedArguments {
    #[command(subcommand)]
    command: Option<PostponedCommand>,
    /// Those that have succeeded since, or of which nothing was left to do
    #[arg(long)]
    settled: bool,
    /// Only what this pass has postponed
    #[arg(long, value_enum)]
    pass: Option<Pass>,
    /// Only what is older than this id in the list
    #[arg(long)]
    before: Option<PostponedId>,
    /// At most this many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    stores: StoreConfig,
}

#[derive(Subcommand)]
enum PostponedCommand {
    /// Have an item tried again by the next run of its pass
    Retry {
        /// Id of the item in the list
        id: PostponedId,
        #[command(flatten)]
        stores: StoreConfig,
    },
}

impl PostponedArguments {
    pub fn stores(&self) -> &StoreConfig {
        match &self.command {
            Some(PostponedCommand::Retry { stores, .. }) => stores,
            None => &self.stores,
        }
    }
}

/// Lists items, or has one retried, on the servers of a running service if there is one.
pub async fn run(arguments: &PostponedArguments) -> anyhow::Result<()> {
    let opened = OpenStores::open(arguments.stores(), As::Guest).await?;
    let done = run_on(arguments, &opened.stores).await;
    let closed = opened.close().await;
    done.and(closed)
}

async fn run_on(arguments: &PostponedArguments, stores: &Stores) -> anyhow::Result<()> {
    let metrics = Metrics::new(std::iter::empty(), std::iter::empty())?;
    let postponed = Postponed::new(stores.pool.clone(), Arc::new(metrics));
    if let Some(PostponedCommand::Retry { id, .. }) = &arguments.command {
        if !postponed.retry(*id, &Actor::command_line()).await? {
            bail!("nothing is postponed under the id {id}; `flash-sale postponed` lists what is");
        }
        println!("It is due now; the next run of its pass in a worker tries it.");
        return Ok(());
    }
    let PostponedArguments { pass, before, limit, json, .. } = *arguments;
    let (part, none) = match arguments.settled {
        true => (PostponedPart::Settled, "Nothing that was postponed has been settled."),
        false => (PostponedPart::Waiting, "Nothing is postponed."),
    };
    let found = postponed.list(part, pass, before, limit).await?;
    print_all(&found, json, none, |out, one| print(out, one))
}

fn print(out: &mut impl Write, item: &PostponedItem) -> std::io::Result<()> {
    let PostponedItem { id, pass, item: of, since, tries, error, what_to_do, .. } = item;
    let kind = item.item_kind.map_or("item", |kind| kind.as_str());
    writeln!(out, "{id}: {pass}: {kind} {of}")?;
    write!(out, "  failed {tries} times since {since:.0}")?;
    match (item.next_try_at, item.settled_at) {
        (_, Some(settled_at)) => writeln!(out, ", settled at {settled_at:.0}")?,
        (Some(next_try_at), None) => writeln!(out, ", is tried again at {next_try_at:.0}")?,
        (None, None) => writeln!(out)?,
    }
    writeln!(out, "  {error}")?;
    writeln!(out, "  {what_to_do}")
}
