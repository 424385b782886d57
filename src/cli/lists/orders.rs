//! `flash-sale orders`: orders, searched for and moved for their buyers, and jobs that cancel all unpaid ones of a coupon.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};

use crate::base::config::StoreConfig;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::Metrics;
use crate::cli::lists::output::{print_all, words};
use crate::cli::stores::{As, OpenStores};
use crate::sale::Stores;
use crate::sale::audit::Actor;
use crate::sale::ids::{CouponId, JobId, OrderId, UserId};
use crate::sale::order::cancellations::{Asked, Cancellations};
use crate::sale::order::model::{Order, OrderFilter, OrderStatus};
use crate::sale::order::moves::jobs::Job;
use crate::sale::order::moves::{Moved, OrderMoves};
use crate::sale::order::write::Orders;
use crate::sale::payment;
use crate::sale::postponed::Postponed;

#[derive(Args)]
pub struct OrdersArguments {
    #[command(subcommand)]
    command: OrdersCommand,
}

#[derive(Subcommand)]
enum OrdersCommand {
    /// Search orders, those in the history too, the last claim first
    List(ListArguments),
    /// Show one order as JSON, also one in the history, without its redemption code
    Show {
        /// Id of the order
        id: OrderId,
        #[command(flatten)]
        stores: StoreConfig,
    },
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
struct ListArguments {
    /// Only orders of this user
    #[arg(long)]
    user: Option<UserId>,
    /// Only orders of this coupon
    #[arg(long)]
    coupon: Option<CouponId>,
    /// Only orders in this status
    #[arg(long, value_enum)]
    status: Option<OrderStatus>,
    /// Only orders claimed from this time on, as in 2026-11-24T12:00:00Z
    #[arg(long)]
    from: Option<DateTime<Utc>>,
    /// Only orders claimed before this time
    #[arg(long)]
    to: Option<DateTime<Utc>>,
    /// Only orders behind this one in the list
    #[arg(long)]
    behind: Option<OrderId>,
    /// At most this many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    stores: StoreConfig,
}

#[derive(Args)]
struct JobsArguments {
    /// Only jobs of this coupon
    #[arg(long)]
    coupon: Option<CouponId>,
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
            OrdersCommand::List(list) => &list.stores,
            OrdersCommand::Show { stores, .. } => stores,
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
        OrdersCommand::List(asked) => {
            let found = search(stores, asked).await?;
            print_all(&found, asked.json, "There is no such order.", |out, one| {
                print_order(out, one)
            })
        }
        OrdersCommand::Show { id, .. } => {
            let Some(order) = moves.find(*id).await? else { bail!("there is no order {id}") };
            println!("{}", serde_json::to_string_pretty(&order.without_code())?);
            Ok(())
        }
        OrdersCommand::Cancel(MoveArguments { id, reason, .. }) => {
            told(*id, moves.cancel_for_buyer(*id, reason.clone(), &by).await?)
        }
        OrdersCommand::Refund(MoveArguments { id, reason, .. }) => {
            let moved = payment::refund_for_buyer(&stores.pool, &moves, *id, reason.clone(), &by);
            told(*id, moved.await?)
        }
        OrdersCommand::CancelUnpaid { coupon, key, reason, .. } => {
            match cancellations(stores, moves)?.ask(*coupon, key, reason, &by).await? {
                Asked::Job(job) => Ok(print(&mut std::io::stdout().lock(), &job)?),
                Asked::KeyReused => bail!(
                    "the key {key} has begun a job for another reason; give another request a key of its own"
                ),
                Asked::NoCoupon => {
                    bail!("there is no coupon {coupon}; `flash-sale coupon list` has all")
                }
            }
        }
        OrdersCommand::Jobs(JobsArguments { coupon, before, limit, json, .. }) => {
            let found = cancellations(stores, moves)?.list(*coupon, *before, *limit).await?;
            print_all(&found, *json, "There has been no job.", |out, one| print(out, one))
        }
    }
}

/// Reads pages until there are as many orders as asked for, or no more.
async fn search(stores: &Stores, asked: &ListArguments) -> anyhow::Result<Vec<Order>> {
    let ListArguments { user, coupon, status, from, to, mut behind, limit, .. } = *asked;
    let timeout = Duration::from_millis(asked.stores.database_timeout_ms);
    let orders = Orders::new(stores.pool.clone(), timeout, limits::PAY_TIME_MIN);
    let filter = OrderFilter { user, coupon, status, from, to };
    let mut found = Vec::new();
    loop {
        let left = limit.saturating_sub(u32::try_from(found.len())?);
        let page = orders.search(&filter, behind, left.min(limits::PAGE_ORDERS_MAX)).await?;
        found.extend(page.orders);
        behind = page.next;
        if behind.is_none() || found.len() >= limit as usize {
            return Ok(found);
        }
    }
}

fn print_order(out: &mut impl Write, order: &Order) -> std::io::Result<()> {
    let Order { order_id, coupon_id, status, claimed_at, pay_cents, currency, .. } = order;
    let status = status.as_str();
    let of = order.user_id.map_or("an erased user".to_owned(), |user| format!("user {user}"));
    writeln!(out, "{order_id}: of {of}, coupon {coupon_id}: {status}")?;
    writeln!(out, "  claimed at {claimed_at:.0}, {pay_cents} cents {currency}")
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
        Moved::TooManyClosed(_) => bail!("its buyer has closed too many orders of the coupon"),
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
