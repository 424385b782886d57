//! `flash-sale coupon`: create and read coupons, in JSON.

use std::io::Write;

use anyhow::{Context, bail};
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use garde::Validate;

use super::stores::{As, OpenStores};
use crate::base::config::{InvalidConfig, StoreConfig};
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::Metrics;
use crate::sale::Stores;
use crate::sale::coupon::{CouponKind, Coupons, NewCoupon, NewSale};
use crate::sale::ids::CouponId;
use crate::sale::settings;
use crate::sale::warm_up::WarmUp;

#[derive(Args)]
pub struct CouponArguments {
    #[command(subcommand)]
    command: CouponCommand,
}

#[derive(Subcommand)]
enum CouponCommand {
    /// Create a coupon
    Create(Box<CreateArguments>),
    /// List coupons, newest first, one JSON object a line
    List {
        /// Only coupons older than this one
        #[arg(long)]
        before: Option<CouponId>,
        /// At most this many
        #[arg(long, default_value_t = 100)]
        limit: u32,
        #[command(flatten)]
        stores: StoreConfig,
    },
    /// Show one coupon
    Show {
        /// Its id
        id: CouponId,
        #[command(flatten)]
        stores: StoreConfig,
    },
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
    /// What the buyer pays, in minor units
    #[arg(long)]
    pay_cents: i64,
    /// What it is worth, in minor units
    #[arg(long)]
    value_cents: i64,
    /// Units on offer; flash coupons only
    #[arg(long, requires_all = ["opens_at", "closes_at"])]
    stock: Option<i64>,
    /// Start of the window, like 2026-11-27T20:00:00Z; flash coupons only
    #[arg(long, requires = "stock")]
    opens_at: Option<DateTime<Utc>>,
    /// End of the window; flash coupons only
    #[arg(long, requires = "stock")]
    closes_at: Option<DateTime<Utc>>,
    #[command(flatten)]
    stores: StoreConfig,
}

impl CouponArguments {
    pub fn stores(&self) -> &StoreConfig {
        match &self.command {
            CouponCommand::Create(arguments) => &arguments.stores,
            CouponCommand::List { stores, .. } | CouponCommand::Show { stores, .. } => stores,
        }
    }
}

impl From<&CreateArguments> for NewCoupon {
    fn from(arguments: &CreateArguments) -> Self {
        let sale = match (arguments.stock, arguments.opens_at, arguments.closes_at) {
            (Some(stock), Some(opens_at), Some(closes_at)) => {
                Some(NewSale { stock, opens_at, closes_at })
            }
            _ => None,
        };
        Self {
            kind: arguments.kind,
            title: arguments.title.clone(),
            sub_title: arguments.sub_title.clone(),
            rules: arguments.rules.clone(),
            pay_cents: arguments.pay_cents,
            value_cents: arguments.value_cents,
            sale,
        }
    }
}

/// Does it, on the servers of a running service if there is one.
pub async fn run(arguments: CouponArguments) -> anyhow::Result<()> {
    let new = match &arguments.command {
        CouponCommand::Create(arguments) => {
            let new = NewCoupon::from(&**arguments);
            new.validate().map_err(|report| InvalidConfig::new(report.to_string().trim_end()))?;
            Some(new)
        }
        _ => None,
    };
    let opened = OpenStores::open(arguments.stores(), As::Guest).await?;
    let done = run_on(&arguments.command, new, &opened.stores).await;
    let closed = opened.close().await;
    done.and(closed)
}

async fn run_on(
    command: &CouponCommand,
    new: Option<NewCoupon>,
    stores: &Stores,
) -> anyhow::Result<()> {
    let epoch = settings::read(&stores.pool).await?.epoch;
    let metrics = Metrics::new(std::iter::empty())?;
    let warm_up = WarmUp::new(stores, epoch, metrics.into());
    let coupons = Coupons::new(stores, warm_up.into(), Shutdown::default());
    let found = match command {
        CouponCommand::Create(_) => {
            vec![coupons.create(new.context("it has been made above")?).await?]
        }
        CouponCommand::List { before, limit, .. } => coupons.list(*before, *limit).await?,
        CouponCommand::Show { id, .. } => match coupons.get(*id).await? {
            Some(coupon) => vec![coupon],
            None => {
                bail!("there is no coupon {id}; `flash-sale coupon list` shows which there are")
            }
        },
    };
    let mut out = std::io::stdout().lock();
    for coupon in found {
        writeln!(out, "{}", serde_json::to_string(&coupon)?)?;
    }
    Ok(())
}
