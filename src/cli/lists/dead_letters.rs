//! `flash-sale dead-letters`: claims that could not become orders, their retry, and their discard.

use std::io::Write;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};

use crate::base::config::StoreConfig;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::cli::lists::output::print_all;
use crate::cli::stores::{As, OpenStores};
use crate::sale::audit::Actor;
use crate::sale::ids::{CouponId, DeadLetterId, UserId};
use crate::sale::order::dead_letter::{Letter, LetterFilter, LetterState, Reason};
use crate::sale::order::discard::{DeadLetters, Discarded};
use crate::sale::order::moves::OrderMoves;
use crate::sale::order::write::Orders;
use crate::sale::recovery::retry::{Retried, Retries};
use crate::sale::{Stores, fence};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DeadLettersArguments {
    #[command(subcommand)]
    command: Option<DeadLettersCommand>,
    /// Open ones, or closed ones: the history
    #[arg(long, value_enum, default_value = "open")]
    state: LetterState,
    /// Only those of this reason
    #[arg(long, value_enum)]
    reason: Option<Reason>,
    /// Only claims of this coupon
    #[arg(long)]
    coupon: Option<CouponId>,
    /// Only claims of this user
    #[arg(long)]
    user: Option<UserId>,
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
    /// Show one dead letter, open or closed, as JSON
    Show {
        /// Id of the dead letter
        id: DeadLetterId,
        #[command(flatten)]
        stores: StoreConfig,
    },
    /// End promises: cancelled orders take the place of dead letters, and their units come back if they exist
    Discard(DiscardArguments),
}

#[derive(Args)]
#[group(id = "which", required = true, multiple = false, args = ["id", "reason"])]
struct DiscardArguments {
    /// Id of the dead letter
    id: Option<DeadLetterId>,
    /// All open ones of this reason
    #[arg(long, value_enum)]
    reason: Option<Reason>,
    #[command(flatten)]
    stores: StoreConfig,
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
            Some(DeadLettersCommand::Show { stores, .. }) => stores,
            Some(DeadLettersCommand::Discard(discard)) => &discard.stores,
            None => &self.stores,
        }
    }
}

/// Lists dead letters, or deals with them, on the servers of a running service if there is one.
pub async fn run(arguments: &DeadLettersArguments) -> anyhow::Result<()> {
    let opened = OpenStores::open(arguments.stores(), As::Guest).await?;
    let pool = &opened.stores.pool;
    let moves = OrderMoves::new(pool.clone(), Shutdown::default());
    let letters = DeadLetters::new(pool.clone(), moves);
    let done = match &arguments.command {
        Some(DeadLettersCommand::Retry(retry)) => run_retry(retry, &opened.stores).await,
        Some(DeadLettersCommand::Show { id, .. }) => show(*id, &letters).await,
        Some(DeadLettersCommand::Discard(discard)) => run_discard(discard, &letters).await,
        None => list(arguments, &letters).await,
    };
    let closed = opened.close().await;
    done.and(closed)
}

async fn list(arguments: &DeadLettersArguments, letters: &DeadLetters) -> anyhow::Result<()> {
    let DeadLettersArguments { state, reason, coupon, user, before, limit, json, .. } = *arguments;
    let found = letters.list(&LetterFilter { state, reason, coupon, user }, before, limit).await?;
    let none = match state {
        LetterState::Open => "No dead letter is open.",
        LetterState::Closed => "No dead letter has been closed.",
    };
    print_all(&found, json, none, |out, one| print(out, one))
}

async fn show(id: DeadLetterId, letters: &DeadLetters) -> anyhow::Result<()> {
    let Some(letter) = letters.get(id).await? else { return Err(not_found(id)) };
    println!("{}", serde_json::to_string_pretty(&letter)?);
    Ok(())
}

async fn run_discard(arguments: &DiscardArguments, letters: &DeadLetters) -> anyhow::Result<()> {
    let by = Actor::command_line();
    if let Some(reason) = arguments.reason {
        let done = letters.discard_all(reason, &by).await?;
        println!("{} are discarded", done.discarded);
        for (code, letters) in done.kept().into_iter().filter(|(_, letters)| *letters > 0) {
            println!("{letters} stay: {code}");
        }
        return Ok(());
    }
    let Some(id) = arguments.id else { bail!("name a dead letter, or give --reason") };
    match letters.discard(id, &by).await? {
        Discarded::Done => println!("It is discarded."),
        Discarded::NotFound => return Err(not_found(id)),
        Discarded::OrderIdTaken => {
            bail!("another order has its order id; look at both before anything is changed")
        }
    }
    Ok(())
}

fn not_found(id: DeadLetterId) -> anyhow::Error {
    anyhow!("there is no dead letter {id}; `flash-sale dead-letters` lists those that are open")
}

fn print(out: &mut impl Write, letter: &Letter) -> std::io::Result<()> {
    let Letter { id, reason, detail, coupon_id, user_id, order_id, .. } = letter;
    match (coupon_id, user_id, order_id) {
        (Some(coupon), Some(user), Some(order)) => {
            writeln!(out, "{id}: order {order} of user {user}, coupon {coupon}: {reason}")?;
        }
        _ => writeln!(out, "{id}: an entry that can't be read: {reason}")?,
    }
    if let Some(closed_at) = letter.closed_at {
        writeln!(out, "  closed at {closed_at:.0}")?;
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
        Retried::NotFound => return Err(not_found(id)),
        Retried::Kept(kept) => bail!("dead letter {id} stays: {kept}"),
    }
    Ok(())
}
