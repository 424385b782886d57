//! `flash-sale recoveries`: closures of lanes, and how they ended.

use std::io::Write;

use anyhow::bail;
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};

use crate::base::config::StoreConfig;
use crate::base::limits;
use crate::cli::lists::output::{print_all, words};
use crate::cli::stores::{As, OpenStores};
use crate::sale::Stores;
use crate::sale::audit::Actor;
use crate::sale::ids::RecoveryId;
use crate::sale::recovery::closures::{self, ClosureReason, RecoveryFilter, RecoveryState};
use crate::sale::recovery::records::{self, LostClaim, Recovery};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct RecoveriesArguments {
    #[command(subcommand)]
    command: Option<RecoveriesCommand>,
    /// Only closures of the lane with this number
    #[arg(long, value_parser = clap::value_parser!(i32).range(0..i64::from(limits::LANES_MAX)))]
    lane: Option<i32>,
    /// Only recoveries in this state
    #[arg(long, value_enum)]
    state: Option<RecoveryState>,
    /// Only lanes that were closed for this reason
    #[arg(long, value_enum)]
    reason: Option<ClosureReason>,
    /// Only lanes that were closed at this time or later, like 2026-11-27T20:00:00Z
    #[arg(long)]
    from: Option<DateTime<Utc>>,
    /// Only lanes that were closed before this time
    #[arg(long)]
    to: Option<DateTime<Utc>>,
    /// Only what is older than this id in the list
    #[arg(long)]
    before: Option<RecoveryId>,
    /// At most this many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    stores: StoreConfig,
}

#[derive(Subcommand)]
enum RecoveriesCommand {
    /// Settle the claims that a recovery could not keep: their buyers have been told
    Settle {
        /// Id of the recovery in the list
        id: RecoveryId,
        /// Account of what the buyers were told, for the books
        #[arg(long, value_parser = words)]
        note: String,
        #[command(flatten)]
        stores: StoreConfig,
    },
}

impl RecoveriesArguments {
    pub fn stores(&self) -> &StoreConfig {
        match &self.command {
            Some(RecoveriesCommand::Settle { stores, .. }) => stores,
            None => &self.stores,
        }
    }
}

/// Lists recoveries, or settles one, on the servers of a running service if there is one.
pub async fn run(arguments: &RecoveriesArguments) -> anyhow::Result<()> {
    let opened = OpenStores::open(arguments.stores(), As::Guest).await?;
    let done = run_on(arguments, &opened.stores).await;
    let closed = opened.close().await;
    done.and(closed)
}

async fn run_on(arguments: &RecoveriesArguments, stores: &Stores) -> anyhow::Result<()> {
    if let Some(RecoveriesCommand::Settle { id, note, .. }) = &arguments.command {
        if !records::settle(&stores.pool, *id, note, &Actor::command_line()).await? {
            bail!(
                "recovery {id} has no claims that it could not keep; `flash-sale recoveries` lists all"
            );
        }
        println!("It is settled.");
        return Ok(());
    }
    let RecoveriesArguments { lane, state, reason, from, to, before, limit, json, .. } = *arguments;
    let filter = RecoveryFilter { lane, state, reason, from, to };
    let found = closures::list(&stores.pool, &filter, before, limit).await?;
    print_all(&found, json, "There is no such recovery.", |out, one| print(out, one))
}

fn print(out: &mut impl Write, recovery: &Recovery) -> std::io::Result<()> {
    let Recovery { id, lane, epoch, reason, closed_at, opened_at, .. } = recovery;
    writeln!(out, "{id}: lane {lane}, epoch {epoch}: {reason}")?;
    let Some(opened_at) = opened_at else {
        return writeln!(out, "  closed at {closed_at:.0}, and not opened by this recovery");
    };
    let ms = (*opened_at - *closed_at).num_milliseconds();
    writeln!(out, "  closed at {closed_at:.0} for {ms} ms")?;
    let number = |number: Option<i64>| number.unwrap_or(0);
    let kept = number(recovery.sales_kept);
    let built = number(recovery.sales_built);
    let buyers = number(recovery.buyers);
    let harvested = number(recovery.harvested);
    let receipts = number(recovery.receipts);
    writeln!(
        out,
        "  sales kept {kept}, built {built} with {buyers} buyers; orders that only Redis knew {harvested}, that only a process knew {receipts}"
    )?;
    if !recovery.absent_processes.is_empty() {
        let names = recovery.absent_processes.join(", ");
        writeln!(out, "  processes that lived and handed no receipts in: {names}")?;
    }
    if let Some(dropped @ 1..) = recovery.receipts_dropped {
        writeln!(out, "  promises that full processes no longer remembered: {dropped}")?;
    }
    if let Some(unknown @ 1..) = recovery.unknown {
        writeln!(
            out,
            "  granted claims that no store and no process knows any more: at least {unknown}"
        )?;
    }
    for LostClaim { coupon_id, user_id, order_id, reason } in &recovery.lost.0 {
        writeln!(out, "  order {order_id} of user {user_id}, coupon {coupon_id}: {reason}")?;
    }
    if let (Some(settled_at), Some(note)) = (recovery.settled_at, &recovery.note) {
        writeln!(out, "  settled at {settled_at:.0}: {note}")?;
    }
    Ok(())
}
