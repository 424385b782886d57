//! `flash-sale orders`: orders that are moved for their buyers, and jobs that cancel all unpaid ones of a coupon.

use std::io::Write;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};

use crate::base::config::StoreConfig;
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::Metrics;
use crate::cli::lists::output::{print_all, words};
use crate::cli::stores::{As, OpenStores};
use crate::sale::Stores;
use crate::sale::audit::Actor;
use crate::sale::ids::{CouponId, JobId, OrderId};
use crate::sale::order::cancellations::Cancellations;
use crate::sale::order::moves::jobs::Job;
use crate::sale::order::moves::{Moved, OrderMoves};
use crate::sale::payment;
use crate::sale::postponed::Postponed;

#[derive(Args)]
pub struct OrdersArguments {
    #[command(subcommand)]
    command: OrdersCommand,
}

#[derive(Subcommand)]
enum OrdersCommand {
    /// Give up an unpaid order for its buyer
    Cancel(MoveArguments),
    /// Ask for the money of a paid order, for its buyer
    Refund(MoveArguments),
    /// Cancel all unpaid orders of a coupon that were claimed before: the workers do it, as a job
    CancelUnpaid {
        /// Id of the coupon
        coupon: CouponId,
        /// Name of this request for this coupon; a repeat finds the same job
        #[arg(long, value_parser = key)]
        key: String,
        /// Reason, for the book of changes
        #[arg(long, value_parser = words)]
        reason: String,
        #[command(flatten)]
        stores: StoreConfig,
    },
    /// List jobs that cancel orders, newest first, with their progress
    Jobs(JobsArguments),
}

#[derive(Args)]
struct MoveArguments {
    /// Id of the order
    id: OrderId,
    /// Reason, for the book of changes
    #[arg(long, value_parser = words)]
    reason: String,
    #[command(flatten)]
    stores: StoreConfig,
}

#[derive(Args)]
struct JobsArguments {
    /// Only what is older than this id in the list
    #[arg(long)]
    before: Option<JobId>,
    /// At most this many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    stores: StoreConfig,
}

fn key(text: &str) -> Result<String, String> {
    let fits = (1..=100).contains(&text.chars().count()) && !text.contains(char::is_control);
    match fits {
        true => Ok(text.to_owned()),
        false => Err("a key has 1 to 100 characters in one line".to_owned()),
    }
}

impl OrdersArguments {
    pub fn stores(&self) -> &StoreConfig {
        match &self.command {
            OrdersCommand::Cancel(of) | OrdersCommand::Refund(of) => &of.stores,
            OrdersCommand::CancelUnpaid { stores, .. } => stores,
            OrdersCommand::Jobs(jobs) => &jobs.stores,
        }
    }
}

/// Moves orders, or lists jobs, on the servers of a running service if there is one.
pub async fn run(arguments: &OrdersArguments) -> anyhow::Result<()> {
    let opened = OpenStores::open(arguments.stores(), As::Guest).await?;
    let done = run_on(&arguments.command, &opened.stores).await;
    let closed = opened.close().await;
    done.and(closed)
}

async fn run_on(command: &OrdersCommand, stores: &Stores) -> anyhow::Result<()> {
    let by = Actor::command_line();
    let moves = OrderMoves::new(stores.pool.clone(), Shutdown::default());
    match command {
        OrdersCommand::Cancel(MoveArguments { id, reason, .. }) => {
            told(*id, moves.cancel_for_buyer(*id, reason.clone(), &by).await?)
        }
        OrdersCommand::Refund(MoveArguments { id, reason, .. }) => {
            let moved = payment::refund_for_buyer(&stores.pool, &moves, *id, reason.clone(), &by);
            told(*id, moved.await?)
        }
        OrdersCommand::CancelUnpaid { coupon, key, reason, .. } => {
            let job = cancellations(stores, moves)?.ask(*coupon, key, reason, &by).await?;
            let no_coupon =
                || anyhow!("there is no coupon {coupon}; `flash-sale coupon list` has all");
            print(&mut std::io::stdout().lock(), &job.ok_or_else(no_coupon)?)?;
            Ok(())
        }
        OrdersCommand::Jobs(JobsArguments { before, limit, json, .. }) => {
            let found = cancellations(stores, moves)?.list(*before, *limit).await?;
            print_all(&found, *json, "There has been no job.", |out, one| print(out, one))
        }
    }
}

fn cancellations(stores: &Stores, moves: OrderMoves) -> anyhow::Result<Cancellations> {
    let metrics = Metrics::new(std::iter::empty(), std::iter::empty())?;
    let postponed = Postponed::new(stores.pool.clone(), Arc::new(metrics));
    Ok(Cancellations::new(stores, moves, postponed))
}

fn told(id: OrderId, moved: Moved) -> anyhow::Result<()> {
    match moved {
        Moved::There(order) => println!("Order {id} is {}.", order.status.as_str()),
        Moved::NotFound => bail!("there is no order {id}"),
        Moved::Impossible { from, to } => {
            bail!("order {id} is {}, and from there it can't become {}", from.as_str(), to.as_str())
        }
    }
    Ok(())
}

fn print(out: &mut impl Write, job: &Job) -> std::io::Result<()> {
    let Job { job_id, coupon_id, key, reason, requested_at, cancelled, left, .. } = job;
    writeln!(out, "{job_id}: unpaid orders of coupon {coupon_id} ({key}): {reason}")?;
    write!(out, "  asked for at {requested_at:.0}; {cancelled} are cancelled, {left} are left")?;
    match job.finished_at {
        Some(finished_at) => writeln!(out, "; finished at {finished_at:.0}"),
        None => writeln!(out, "; a worker goes on with it"),
    }
}
