//! `flash-sale payments`: payments that no order has, and payments on their way back.

use std::io::Write;

use anyhow::bail;
use clap::{Args, Subcommand};

use crate::base::config::StoreConfig;
use crate::base::shutdown::Shutdown;
use crate::cli::lists::output::{print_all, words};
use crate::cli::stores::{As, OpenStores};
use crate::sale::Stores;
use crate::sale::audit::Actor;
use crate::sale::ids::{OrderId, PaymentId};
use crate::sale::order::moves::OrderMoves;
use crate::sale::payment::model::PaymentReason;
use crate::sale::payment::owed::{OwedFilter, OwedPayment, OwedPayments, PaymentPart, Settled};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct PaymentsArguments {
    #[command(subcommand)]
    command: Option<PaymentsCommand>,
    /// Those that waited once, and have gone back or were closed
    #[arg(long)]
    settled: bool,
    /// Only those of this reason
    #[arg(long, value_enum)]
    reason: Option<PaymentReason>,
    /// Only those for this order
    #[arg(long)]
    order: Option<OrderId>,
    /// Only what is older than this id in the list
    #[arg(long)]
    before: Option<PaymentId>,
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
enum PaymentsCommand {
    /// Hand a held payment back: its gateway is asked to refund it
    HandBack {
        /// Id of the payment in the list
        id: PaymentId,
        #[command(flatten)]
        stores: StoreConfig,
    },
    /// Close a payment whose money has been dealt with by other means
    Close {
        /// Id of the payment in the list
        id: PaymentId,
        /// Account of the money, for the books
        #[arg(long, value_parser = words)]
        note: String,
        #[command(flatten)]
        stores: StoreConfig,
    },
}

impl PaymentsArguments {
    pub fn stores(&self) -> &StoreConfig {
        match &self.command {
            Some(
                PaymentsCommand::HandBack { stores, .. } | PaymentsCommand::Close { stores, .. },
            ) => stores,
            None => &self.stores,
        }
    }
}

/// Lists payments that wait, or settles one, on the servers of a running service if there is one.
pub async fn run(arguments: &PaymentsArguments) -> anyhow::Result<()> {
    let opened = OpenStores::open(arguments.stores(), As::Guest).await?;
    let done = run_on(arguments, &opened.stores).await;
    let closed = opened.close().await;
    done.and(closed)
}

async fn run_on(arguments: &PaymentsArguments, stores: &Stores) -> anyhow::Result<()> {
    let moves = OrderMoves::new(stores.pool.clone(), Shutdown::default());
    let owed = OwedPayments::new(stores.pool.clone(), moves);
    let by = Actor::command_line();
    let (id, settled, words) = match &arguments.command {
        Some(PaymentsCommand::HandBack { id, .. }) => {
            (id, owed.hand_back(*id, &by).await?, "It goes back; a worker asks its gateway.")
        }
        Some(PaymentsCommand::Close { id, note, .. }) => {
            (id, owed.close(*id, note.clone(), &by).await?, "It is closed.")
        }
        None => {
            let (part, none) = match arguments.settled {
                true => (PaymentPart::Settled, "No payment has been settled."),
                false => (PaymentPart::Waiting, "No payment waits."),
            };
            let (reason, order) = (arguments.reason, arguments.order);
            let filter = OwedFilter { part, reason, order };
            let found = owed.list(&filter, arguments.before, arguments.limit).await?;
            return print_all(&found, arguments.json, none, |out, one| print(out, one));
        }
    };
    match settled {
        Settled::Done => println!("{words}"),
        Settled::NotFound => {
            bail!("there is no payment {id}; `flash-sale payments` lists those that wait")
        }
        Settled::DoesNotWait => bail!("payment {id} doesn't wait: nothing is left to do about it"),
        Settled::ChargedBack => bail!(
            "the gateway has taken the money of payment {id} back already; `flash-sale payments close {id} --note ...` returns the unit of its order"
        ),
        Settled::IdUsedTwice => bail!(
            "the gateway knows the id of payment {id} for another one: return the money by the gateway's own means, then `flash-sale payments close {id} --note ...`"
        ),
    }
    Ok(())
}

fn print(out: &mut impl Write, payment: &OwedPayment) -> std::io::Result<()> {
    let OwedPayment { payment_id, gateway_payment_id, order_id, .. } = payment;
    let (status, reason) = (payment.status.as_str(), payment.reason.as_str());
    let amount = payment.amount();
    writeln!(out, "{payment_id}: {amount} for order {order_id}: {status}, {reason}")?;
    write!(out, "  gateway's id {gateway_payment_id}, since {:.0}", payment.since)?;
    match payment.asked_at {
        Some(asked_at) => writeln!(out, ", last asked at {asked_at:.0}")?,
        None => writeln!(out)?,
    }
    writeln!(out, "  {}", payment.what_to_do)
}
