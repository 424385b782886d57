//! This service, unchanged, in the process of a ladder: doors' capabilities and worker, through its library.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use clap::Parser;
use flash_sale::app::{self, App};
use flash_sale::base::clock::Clock;
use flash_sale::base::config::Config;
use flash_sale::base::shutdown::Shutdown;
use flash_sale::coupon::create::Creation;
use flash_sale::coupon::input::{NewCoupon, NewSale};
use flash_sale::coupon::model::CouponKind;
use flash_sale::fence::in_redis::read_lanes;
use flash_sale::fence::table;
use flash_sale::http::state::HttpState;
use flash_sale::http::{self, server};
use flash_sale::kit::jwt::Tokens;
use flash_sale::store::audit::Actor;
use flash_sale::store::fleet::Fleet;
use flash_sale::store::ids::{CouponId, Lane};
use flash_sale::store::keys::Keys;
use flash_sale::store::postgres;
use flash_sale::store::redis::Redis;
use flash_sale::store::{Stores, schema};
use flash_sale::worker;
use secrecy::SecretString;
use tokio::time::sleep;

/// A ladder is about outcomes, also on a machine so busy that a store needs seconds.
const PATIENT: [&str; 6] =
    ["--redis-timeout-ms", "10000", "--claim-wait-ms", "9000", "--database-timeout-ms", "10000"];

/// Signs the tokens of a crowd.
const SECRET: &str = "a secret that is only good for the ladder";

/// Signer of tokens that [`Service::listen`] takes.
pub fn tokens() -> Tokens {
    Tokens::new(&SecretString::from(SECRET))
}

/// The service in this process.
pub struct Service {
    /// Its capabilities.
    pub app: Arc<App>,
    /// Its settings.
    pub config: Config,
}

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    config: Config,
}

impl Service {
    /// Starts it on these stores, with settings as on the command line. Returns once its lanes are open.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer.
    pub async fn start(
        redis_url: &str,
        database_url: &str,
        settings: &[&str],
    ) -> anyhow::Result<Self> {
        let arguments = ["flash-sale"].iter().chain(&PATIENT).chain(settings);
        let config = Command::parse_from(arguments).config;
        let of = &config.stores;
        let (connections, timeout) = (of.database_connections, of.database_timeout());
        let pool = postgres::pool(database_url, connections, timeout, of.events)?;
        let fleet = Fleet::new([Redis::with_timeout(redis_url, of.redis_timeout())?]);
        let stores = Stores { pool, fleet, keys: Keys::new(&of.key_prefix) };
        schema::migrate(&stores.pool).await?;
        let app = App::assemble(&config, stores, Clock::System, Shutdown::default()).await?;
        app::start_housekeeping(&app);
        worker::start(&app, &config);
        let service = Self { app, config };
        service.until_open().await?;
        Ok(service)
    }

    /// Answers HTTP on a free port of this machine for as long as the process lives. Returns host and port.
    ///
    /// # Errors
    ///
    /// When no port is free.
    pub fn listen(&self) -> anyhow::Result<String> {
        let listener = server::bind(([127, 0, 0, 1], 0).into())?;
        let address = listener.local_addr()?.to_string();
        let (app, config) = (&self.app, &self.config);
        let state = HttpState::new(app.clone(), config, tokens());
        let shutdown = app.shutdown.clone();
        let served =
            server::run(listener, http::api(&state, true), config.connections_max, app.clone());
        shutdown.spawn(served);
        Ok(address)
    }

    /// Creates a coupon with so many units, on sale for an hour.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer.
    pub async fn create_coupon(&self, units: i64) -> anyhow::Result<CouponId> {
        let now = Clock::System.now();
        let sale = NewSale {
            total: units,
            opens_at: now - TimeDelta::hours(1),
            closes_at: now + TimeDelta::hours(1),
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
        match self.app.coupons.create(new, None, &Actor::command_line()).await? {
            Creation::Created(coupon) => Ok(coupon.id),
            refused => Err(refused.into()),
        }
    }

    /// The coupon that was created last, by whatever process.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer.
    pub async fn last_coupon(&self) -> anyhow::Result<CouponId> {
        let last = sqlx::query_scalar("SELECT max(id) FROM coupons");
        Ok(CouponId::new(last.fetch_one(&self.app.stores.pool).await?)?)
    }

    /// Returns once all promised orders are rows.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn rest(&self) -> anyhow::Result<()> {
        while self.app.backlog.check().await? > 0 {
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// A Redis that has got its first replica is compared once before its lanes open.
    async fn until_open(&self) -> anyhow::Result<()> {
        let stores = &self.app.stores;
        loop {
            let lanes = table::all(&stores.pool).await?;
            let names: Vec<Lane> = lanes.iter().map(|lane| lane.lane).collect();
            let (_, seen) = read_lanes(stores.fleet.first(), &stores.keys, &names).await?;
            let is_open = lanes.iter().zip(seen).all(|(lane, (_, seen))| seen.is_open(lane.epoch));
            if !lanes.is_empty() && is_open {
                return Ok(());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}
