//! `flash-sale coupon create`: creates a coupon for a first sale. Everything else about coupons is done over HTTP.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use garde::Validate;

use super::stores::as_guest;
use crate::base::config::{InvalidConfig, StoreConfig};
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::Metrics;
use crate::cli::terminal::say;
use crate::coupon::create::{Coupons, Creation};
use crate::coupon::input::{NewCoupon, NewSale};
use crate::coupon::load::Loader;
use crate::coupon::model::{Coupon, CouponKind};
use crate::fence;
use crate::fence::loss::LossAlarm;
use crate::recovery::apart;
use crate::store::Stores;
use crate::store::audit::Actor;
use crate::store::postponed::Postponed;

#[derive(Args)]
pub struct CouponArguments {
    #[command(subcommand)]
    pub command: CouponCommand,
}

#[derive(Subcommand)]
pub enum CouponCommand {
    /// Create a coupon, and print it as JSON
    Create(Box<CreateArguments>),
}

#[derive(Args)]
pub struct CreateArguments {
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
    pub stores: StoreConfig,
}

/// Runs the command, on the servers of a running service if there is one.
pub async fn run(arguments: CouponArguments) -> anyhow::Result<()> {
    let CouponCommand::Create(arguments) = arguments.command;
    let CreateArguments { kind, title, sub_title, rules, pay_cents, currency, value_cents, .. } =
        *arguments;
    let sale = match (arguments.total, arguments.opens_at, arguments.closes_at) {
        (Some(total), Some(opens_at), Some(closes_at)) => {
            Some(NewSale { total, opens_at, closes_at })
        }
        _ => None,
    };
    let new = NewCoupon { kind, title, sub_title, rules, pay_cents, currency, value_cents, sale };
    new.validate().map_err(|report| InvalidConfig::new(report.to_string().trim_end()))?;
    let created = as_guest(&arguments.stores, async |stores| create(new, stores).await).await?;
    say!("{}", serde_json::to_string(&created)?);
    Ok(())
}

async fn create(new: NewCoupon, stores: &Stores) -> anyhow::Result<Coupon> {
    apart::examine_at_start(stores).await?;
    let metrics = Arc::new(Metrics::new(std::iter::empty(), std::iter::empty())?);
    let postponed = Postponed::new(stores, metrics.clone());
    let lanes = fence::states_of(stores).await?;
    let loss = Arc::new(LossAlarm::new(metrics, lanes.clone()));
    let loader = Arc::new(Loader::new(stores, lanes, loss, postponed));
    let coupons = Coupons::new(stores, loader, Shutdown::default());
    match coupons.create(new, None, &Actor::command_line()).await? {
        Creation::Created(coupon) => Ok(*coupon),
        refused => Err(refused.into()),
    }
}
