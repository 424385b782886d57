//! `flash-sale coupon`: create, change and read coupons, in JSON.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use garde::Validate;
use serde::Serialize;

use super::stores::{As, OpenStores};
use crate::base::config::{InvalidConfig, StoreConfig};
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::Metrics;
use crate::cli::terminal::say;
use crate::sale::Stores;
use crate::sale::archive::{Archive, ArchiveOutcome};
use crate::sale::audit::Actor;
use crate::sale::coupon::changes::{ChangeOutcome, CouponChanges};
use crate::sale::coupon::create::{Coupons, Creation};
use crate::sale::coupon::input::{CouponEdit, Move, NewCoupon, NewSale, Restock, SaleEdit};
use crate::sale::coupon::load::Loader;
use crate::sale::coupon::model::{Coupon, CouponFilter, CouponKind, CouponState};
use crate::sale::coupon::rules::Change;
use crate::sale::fence;
use crate::sale::ids::CouponId;
use crate::sale::loss::LossAlarm;
use crate::sale::postponed::Postponed;
use crate::sale::reconcile::gauges::{SideBySide, side_by_side};
use crate::sale::recovery::apart;

#[derive(Args)]
pub struct CouponArguments {
    #[command(subcommand)]
    command: CouponCommand,
}

#[derive(Subcommand)]
enum CouponCommand {
    /// Create a coupon
    Create(Box<CreateArguments>),
    /// Change what is mentioned and nothing else
    Edit(Box<EditArguments>),
    /// Suspend the claims on a coupon
    Pause(MovedCoupon),
    /// Let claims on a paused coupon go on
    Resume(MovedCoupon),
    /// End a coupon, for good
    End(MovedCoupon),
    /// Relieve Redis of a sale that has ended, now; Postgres answers for it from then on
    Archive {
        /// Also if something about it is open: its dead letters are closed, units on their way back and buyers without an order dropped
        #[arg(long)]
        accept_loss: bool,
        #[command(flatten)]
        coupon: OneCoupon,
    },
    /// Add units to a sale, once for each key
    Restock {
        /// Units to add
        #[arg(long)]
        units: i64,
        /// Names this restock: repeating the command with it adds nothing
        #[arg(long)]
        key: String,
        #[command(flatten)]
        coupon: OneCoupon,
    },
    /// List coupons, newest first, one JSON object a line
    List {
        /// Only coupons of this kind
        #[arg(long, value_enum)]
        kind: Option<CouponKind>,
        /// Only coupons in this state
        #[arg(long, value_enum)]
        state: Option<CouponState>,
        /// Only coupons older than this one
        #[arg(long)]
        before: Option<CouponId>,
        /// At most this many
        #[arg(long, default_value_t = 100)]
        limit: u32,
        #[command(flatten)]
        stores: StoreConfig,
    },
    /// Show one coupon, and what Redis and Postgres say of its sale, side by side
    Show(OneCoupon),
}

#[derive(Args)]
struct OneCoupon {
    /// Id of the coupon
    id: CouponId,
    #[command(flatten)]
    stores: StoreConfig,
}

#[derive(Args)]
struct MovedCoupon {
    /// Only if the coupon still has this revision
    #[arg(long)]
    revision: Option<i64>,
    #[command(flatten)]
    coupon: OneCoupon,
}

#[derive(Args)]
struct EditArguments {
    /// Edit only if the coupon still has this revision
    #[arg(long)]
    revision: Option<i64>,
    /// Headline
    #[arg(long)]
    title: Option<String>,
    /// Second line
    #[arg(long)]
    sub_title: Option<String>,
    /// Terms, in words
    #[arg(long)]
    rules: Option<String>,
    /// Price, in minor units
    #[arg(long)]
    pay_cents: Option<i64>,
    /// Worth, in minor units
    #[arg(long)]
    value_cents: Option<i64>,
    /// Units on offer, never fewer than there are; flash coupons only
    #[arg(long)]
    total: Option<i64>,
    /// Start of the window, like 2026-11-27T20:00:00Z; flash coupons only
    #[arg(long)]
    opens_at: Option<DateTime<Utc>>,
    /// End of the window; flash coupons only
    #[arg(long)]
    closes_at: Option<DateTime<Utc>>,
    #[command(flatten)]
    coupon: OneCoupon,
}

#[derive(Args)]
struct CreateArguments {
    /// Whether it has a sale
    #[arg(long, value_enum, default_value = "flash")]
    kind: CouponKind,
    /// Headline
    #[arg(long)]
    title: String,
    /// Second line
    #[arg(long, default_value = "")]
    sub_title: String,
    /// Terms, in words
    #[arg(long, default_value = "")]
    rules: String,
    /// Price, in minor units
    #[arg(long)]
    pay_cents: i64,
    /// Currency of the price, by its three letters of ISO 4217
    #[arg(long, default_value = "CNY")]
    currency: String,
    /// Worth, in minor units
    #[arg(long)]
    value_cents: i64,
    /// Units on offer; flash coupons only
    #[arg(long, requires_all = ["opens_at", "closes_at"])]
    total: Option<i64>,
    /// Start of the window, like 2026-11-27T20:00:00Z; flash coupons only
    #[arg(long, requires = "total")]
    opens_at: Option<DateTime<Utc>>,
    /// End of the window; flash coupons only
    #[arg(long, requires = "total")]
    closes_at: Option<DateTime<Utc>>,
    #[command(flatten)]
    stores: StoreConfig,
}

impl CouponArguments {
    pub fn stores(&self) -> &StoreConfig {
        match &self.command {
            CouponCommand::Create(arguments) => &arguments.stores,
            CouponCommand::Edit(arguments) => &arguments.coupon.stores,
            CouponCommand::List { stores, .. } => stores,
            CouponCommand::Pause(moved)
            | CouponCommand::Resume(moved)
            | CouponCommand::End(moved) => &moved.coupon.stores,
            CouponCommand::Restock { coupon, .. }
            | CouponCommand::Archive { coupon, .. }
            | CouponCommand::Show(coupon) => &coupon.stores,
        }
    }
}

/// The request behind a command whose arguments are valid.
enum Task {
    Create(NewCoupon),
    Change(CouponId, Change),
    Archive(CouponId, bool),
    List(CouponFilter, Option<CouponId>, u32),
    Show(CouponId),
}

impl TryFrom<CouponCommand> for Task {
    type Error = InvalidConfig;

    fn try_from(command: CouponCommand) -> Result<Self, InvalidConfig> {
        let moved = |moved: MovedCoupon, to| {
            let revision = valid(Move { revision: moved.revision })?.revision;
            Ok(Self::Change(moved.coupon.id, Change::Move(to, revision)))
        };
        Ok(match command {
            CouponCommand::Create(arguments) => Self::Create(valid(NewCoupon::from(&*arguments))?),
            CouponCommand::Edit(arguments) => {
                let edit = valid(CouponEdit::from(&*arguments))?;
                Self::Change(arguments.coupon.id, Change::Edit(edit))
            }
            CouponCommand::Pause(coupon) => moved(coupon, CouponState::Paused)?,
            CouponCommand::Resume(coupon) => moved(coupon, CouponState::Active)?,
            CouponCommand::End(coupon) => moved(coupon, CouponState::Ended)?,
            CouponCommand::Restock { units, key, coupon } => {
                Self::Change(coupon.id, Change::Restock(valid(Restock { units, key })?))
            }
            CouponCommand::Archive { accept_loss, coupon } => Self::Archive(coupon.id, accept_loss),
            CouponCommand::List { kind, state, before, limit, .. } => {
                Self::List(CouponFilter { kind, state }, before, limit)
            }
            CouponCommand::Show(coupon) => Self::Show(coupon.id),
        })
    }
}

fn valid<T: Validate<Context = ()>>(input: T) -> Result<T, InvalidConfig> {
    match input.validate() {
        Ok(()) => Ok(input),
        Err(report) => Err(InvalidConfig::new(report.to_string().trim_end())),
    }
}

impl From<&CreateArguments> for NewCoupon {
    fn from(arguments: &CreateArguments) -> Self {
        let sale = match (arguments.total, arguments.opens_at, arguments.closes_at) {
            (Some(total), Some(opens_at), Some(closes_at)) => {
                Some(NewSale { total, opens_at, closes_at })
            }
            _ => None,
        };
        Self {
            kind: arguments.kind,
            title: arguments.title.clone(),
            sub_title: arguments.sub_title.clone(),
            rules: arguments.rules.clone(),
            pay_cents: arguments.pay_cents,
            currency: arguments.currency.clone(),
            value_cents: arguments.value_cents,
            sale,
        }
    }
}

impl From<&EditArguments> for CouponEdit {
    fn from(arguments: &EditArguments) -> Self {
        let EditArguments { total, opens_at, closes_at, .. } = *arguments;
        let mentioned = total.is_some() || opens_at.is_some() || closes_at.is_some();
        Self {
            revision: arguments.revision,
            title: arguments.title.clone(),
            sub_title: arguments.sub_title.clone(),
            rules: arguments.rules.clone(),
            pay_cents: arguments.pay_cents,
            value_cents: arguments.value_cents,
            sale: mentioned.then_some(SaleEdit { total, opens_at, closes_at }),
        }
    }
}

/// Runs the command, on the servers of a running service if there is one.
pub async fn run(arguments: CouponArguments) -> anyhow::Result<()> {
    let config = arguments.stores().clone();
    let task = Task::try_from(arguments.command)?;
    let opened = OpenStores::open(&config, As::Guest).await?;
    let done = run_on(task, &opened.stores).await;
    let closed = opened.close().await;
    done.and(closed)
}

/// A coupon; with `show`, also the state of its sale in both stores.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    coupon: Coupon,
    #[serde(skip_serializing_if = "Option::is_none")]
    stores: Option<SideBySide>,
}

async fn run_on(task: Task, stores: &Stores) -> anyhow::Result<()> {
    let metrics = Arc::new(Metrics::new(std::iter::empty(), std::iter::empty())?);
    let postponed = Postponed::new(stores.pool.clone(), metrics.clone());
    apart::examine_at_start(stores).await?;
    let lanes = fence::states_of(stores).await?;
    let loss = Arc::new(LossAlarm::new(metrics, lanes.clone()));
    let loader = Arc::new(Loader::new(stores, lanes.clone(), loss, postponed.clone()));
    let coupons = Arc::new(Coupons::new(stores, loader.clone(), Shutdown::default()));
    let mut sides = match &task {
        Task::Show(id) => side_by_side(stores, *id).await?,
        _ => None,
    };
    let shutdown = Shutdown::default();
    let changes = CouponChanges::new(
        stores,
        coupons.clone(),
        loader,
        lanes,
        postponed.clone(),
        shutdown.clone(),
    );
    let found = match task {
        Task::Create(new) => match coupons.create(new, None, &Actor::command_line()).await? {
            Creation::Created(coupon) => vec![*coupon],
            refused => return Err(refused.into()),
        },
        Task::Change(id, change) => {
            vec![changed(changes.change(id, change, &Actor::command_line()).await?)?]
        }
        Task::Archive(id, accept_loss) => {
            let archive = Archive::new(stores, changes.into(), postponed, Duration::ZERO, shutdown);
            return archived(archive.ask(id, accept_loss, &Actor::command_line()).await?);
        }
        Task::List(filter, before, limit) => coupons.list(filter, before, limit).await?,
        Task::Show(id) => match coupons.get(id).await? {
            Some(coupon) => vec![coupon],
            None => {
                bail!("there is no coupon {id}; `flash-sale coupon list` shows which there are")
            }
        },
    };
    for coupon in found {
        let shown = Shown { coupon, stores: sides.take() };
        say!("{}", serde_json::to_string(&shown)?);
    }
    Ok(())
}

fn archived(outcome: ArchiveOutcome) -> anyhow::Result<()> {
    match outcome {
        ArchiveOutcome::Archived(archived) => {
            say!("{}", serde_json::to_string(&archived)?);
            Ok(())
        }
        ArchiveOutcome::Refused(refusal) => Err(refusal.into()),
    }
}

fn changed(outcome: ChangeOutcome) -> anyhow::Result<Coupon> {
    match outcome {
        ChangeOutcome::Changed(coupon) => Ok(coupon),
        ChangeOutcome::Decided(coupon) => {
            eprintln!(
                "Redis could not be told yet; a running worker will tell it, until then claims go on as before"
            );
            Ok(coupon)
        }
        ChangeOutcome::Refused(refusal) => Err(refusal.into()),
    }
}
