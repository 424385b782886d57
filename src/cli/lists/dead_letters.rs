//! `flash-sale dead-letters`: claims that could not become orders, and their retry.

use std::io::Write;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand};

use crate::base::config::StoreConfig;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::cli::lists::output::print_all;
use crate::cli::stores::{As, OpenStores};
use crate::sale::audit::Actor;
use crate::sale::ids::DeadLetterId;
use crate::sale::order::dead_letter::{OpenLetter, Reason};
use crate::sale::order::discard::DeadLetters;
use crate::sale::order::moves::OrderMoves;
use crate::sale::order::write::Orders;
use crate::sale::recovery::retry::{Retried, Retries};
use crate::sale::{Stores, fence};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DeadLettersArguments {
    #[command(subcommand)]
    command: Option<DeadLettersCommand>,
    /// Only what is older than this id in the list
    #[arg(long)]
    before: Option<DeadLetterId>,
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
enum DeadLettersCommand {
    /// Make orders of dead letters, as far as nothing speaks against it any more
    Retry(RetryArguments),
}

#[derive(Args)]
struct RetryArguments {
    /// Id of the dead letter; all open ones if not given
    #[arg(conflicts_with = "reason")]
    id: Option<DeadLetterId>,
    /// Only those of this reason
    #[arg(long, value_enum)]
    reason: Option<Reason>,
    #[command(flatten)]
    stores: StoreConfig,
}

impl DeadLettersArguments {
    pub fn stores(&self) -> &StoreConfig {
        match &self.command {
            Some(DeadLettersCommand::Retry(retry)) => &retry.stores,
            None => &self.stores,
        }
    }
}

/// Lists dead letters, or tries them again, on the servers of a running service if there is one.
pub async fn run(arguments: &DeadLettersArguments) -> anyhow::Result<()> {
    let opened = OpenStores::open(arguments.stores(), As::Guest).await?;
    let done = match &arguments.command {
        Some(DeadLettersCommand::Retry(retry)) => run_retry(retry, &opened.stores).await,
        None => list(arguments, &opened.stores).await,
    };
    let closed = opened.close().await;
    done.and(closed)
}

async fn list(arguments: &DeadLettersArguments, stores: &Stores) -> anyhow::Result<()> {
    let moves = OrderMoves::new(stores.pool.clone(), Shutdown::default());
    let letters = DeadLetters::new(stores.pool.clone(), moves);
    let found = letters.list(arguments.before, arguments.limit).await?;
    print_all(&found, arguments.json, "No dead letter is open.", |out, one| print(out, one))
}

fn print(out: &mut impl Write, letter: &OpenLetter) -> std::io::Result<()> {
    let OpenLetter { id, reason, detail, coupon_id, user_id, order_id, .. } = letter;
    match (coupon_id, user_id, order_id) {
        (Some(coupon), Some(user), Some(order)) => {
            writeln!(out, "{id}: order {order} of user {user}, coupon {coupon}: {reason}")?;
        }
        _ => writeln!(out, "{id}: an entry that can't be read: {reason}")?,
    }
    writeln!(out, "  {detail}")
}

async fn run_retry(arguments: &RetryArguments, stores: &Stores) -> anyhow::Result<()> {
    let timeout = Duration::from_millis(arguments.stores.database_timeout_ms);
    let orders =
        Orders::new(stores.pool.clone(), timeout.max(limits::REDIS_TIMEOUT), limits::PAY_TIME_MIN);
    let lanes = fence::states_of(stores).await?;
    let retries = Retries::new(stores, orders, lanes);
    let by = Actor::command_line();
    let Some(id) = arguments.id else {
        let done = retries.retry_all(arguments.reason, &by).await?;
        println!("{} became orders", done.orders);
        for (code, letters) in done.kept {
            println!("{letters} stay: {code}");
        }
        return Ok(());
    };
    match retries.retry(id, &by).await? {
        Retried::Order(order) => println!("It is order {order} now."),
        Retried::NotFound => bail!(
            "there is no dead letter {id}; `flash-sale dead-letters` lists those that are open"
        ),
        Retried::Kept(kept) => bail!("dead letter {id} stays: {kept}"),
    }
    Ok(())
}
