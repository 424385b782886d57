//! This service, unchanged.

pub mod http;
pub mod library;

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use clap::Parser;
use flash_sale::app::{self, App};
use flash_sale::base::clock::Clock;
use flash_sale::base::config::Config;
use flash_sale::base::shutdown::Shutdown;
use flash_sale::kit::postgres;
use flash_sale::kit::redis::Redis;
use flash_sale::sale::audit::Actor;
use flash_sale::sale::coupon::create::Creation;
use flash_sale::sale::coupon::input::{NewCoupon, NewSale};
use flash_sale::sale::coupon::model::CouponKind;
use flash_sale::sale::fence::table;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::keys::Keys;
use flash_sale::sale::{Stores, schema};
use flash_sale::worker;
use tokio::time::sleep;

use crate::scene::Scene;

/// Part of a rung's key before its level of durability.
const LEVEL: &str = "level-";
/// A ladder is about outcomes, also on a machine so busy that a store needs seconds.
const PATIENT: [&str; 6] =
    ["--redis-timeout-ms", "10000", "--claim-wait-ms", "9000", "--database-timeout-ms", "10000"];

/// The service in this process, and its coupon on sale.
pub struct Service {
    pub app: Arc<App>,
    pub config: Config,
    pub coupon: CouponId,
}

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    config: Config,
}

impl Service {
    /// Starts doors and worker. A process that was started again goes on with the coupon of the one before.
    pub async fn start(scene: &Scene) -> anyhow::Result<Self> {
        let level = scene.task.rung.strip_prefix(LEVEL).map(|level| ["--durability", level]);
        let arguments =
            ["flash-sale"].into_iter().chain(PATIENT).chain(level.into_iter().flatten());
        let config = Command::parse_from(arguments).config;
        let stores = stores(scene, &config)?;
        schema::migrate(&stores.pool).await?;
        let app = App::assemble(&config, stores, Clock::System, Shutdown::default()).await?;
        app::start_housekeeping(&app);
        worker::start(&app, &config);
        until_open(&app).await?;
        let coupon = match scene.task.again {
            true => last_coupon(scene).await?,
            false => create(&app, scene.task.units).await?,
        };
        Ok(Self { app, config, coupon })
    }

    /// Returns once all promised orders are rows.
    pub async fn rest(&self) -> anyhow::Result<()> {
        while self.app.backlog.look().await? > 0 {
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

fn stores(scene: &Scene, config: &Config) -> anyhow::Result<Stores> {
    let of = &config.stores;
    let (connections, timeout) = (of.database_connections, of.database_timeout());
    let pool = postgres::pool(&scene.task.database_url, connections, timeout)?;
    let redis = Redis::with_timeout(&scene.task.redis_url, of.redis_timeout())?;
    Ok(Stores { pool, redis, keys: Keys::new(&of.key_prefix) })
}

/// A Redis that has got its first replica is compared once before its lanes open.
async fn until_open(app: &App) -> anyhow::Result<()> {
    loop {
        let origin = app.stores.redis.link().await?.origin().await?;
        let lanes = table::all(&app.stores.pool).await?;
        let is_open =
            |lane: &table::StoredLane| lane.is_open && lane.origin.as_ref() == Some(&origin);
        if !lanes.is_empty() && lanes.iter().all(is_open) {
            return Ok(());
        }
        sleep(Duration::from_millis(20)).await;
    }
}

async fn create(app: &App, units: i64) -> anyhow::Result<CouponId> {
    let now = Clock::System.now();
    let sale = NewSale {
        total: units,
        opens_at: now - TimeDelta::hours(1),
        closes_at: now + TimeDelta::hours(1),
        durability: None,
    };
    let new = NewCoupon {
        kind: CouponKind::Flash,
        title: "Dinner for two".to_owned(),
        sub_title: String::new(),
        rules: String::new(),
        pay_cents: 2_500,
        currency: "CNY".to_owned(),
        value_cents: 5_000,
        sale: Some(sale),
    };
    match app.coupons.create(new, &Actor::command_line()).await? {
        Creation::Created(coupon) => Ok(coupon.id),
        refused => Err(refused.into()),
    }
}

async fn last_coupon(scene: &Scene) -> anyhow::Result<CouponId> {
    let last = sqlx::query_scalar("SELECT max(id) FROM coupons").fetch_one(&scene.pool).await?;
    Ok(CouponId::new(last)?)
}
