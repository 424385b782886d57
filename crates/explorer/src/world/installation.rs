//! The installation, put together.

use std::path::{Path, PathBuf};

use flash_sale::base::clock::Clock;
use flash_sale::kit::jwt::{Grants, Tokens};
use secrecy::SecretString;
use sqlx::PgPool;
use tokio::sync::Mutex;

use super::machine::Machine;
use super::postgres::Postgres;
use super::proxy::Proxy;
use super::redis_pair::RedisPair;
use super::service::Service;
use super::time::Stopwatch;
use crate::plan::{APIS, PROCESSES, Plan, Sync};

/// Start of all keys in Redis.
pub const PREFIX: &str = "fs";
/// Secret that signs tokens. The servers of a run are thrown away, and so is the secret.
const SECRET: &str = "an explorer's secret, which guards nothing at all";
/// Life of a token, longer than the clock of any process is off.
const TOKEN_DAYS: i64 = 365;
/// Lanes of the installation.
const LANES: &str = "2";
/// Time zones of the processes, by place, as POSIX has them. In the first two it is never the same day.
const ZONES: [&str; PROCESSES] = ["<-12>12", "<+14>-14", "UTC0", "<+0530>-5:30"];

/// All servers and processes of a run.
#[derive(Debug)]
pub struct Installation {
    /// Folder of logs and data.
    pub folder: PathBuf,
    /// The time of the run.
    pub time: Stopwatch,
    /// Redis and its replica.
    pub redis: Mutex<RedisPair>,
    /// Held by the one fault that breaks the server of Redis, from its beginning to its end: under load a fault may end
    /// later than planned.
    pub redis_ground: Mutex<()>,
    /// Processes, by place.
    pub services: Vec<Service>,
    /// Ways to Redis, by place.
    pub ways_to_redis: Vec<Proxy>,
    /// Ways to Postgres, by place.
    pub ways_to_postgres: Vec<Proxy>,
    /// Connections of our own to the database.
    pub pool: PgPool,
    /// URL of the database, past the proxies.
    pub database_url: String,
    /// Binary of the service.
    pub binary: PathBuf,
    /// When Redis syncs its file.
    pub sync: Sync,
}

impl Installation {
    /// Starts everything, and waits until each process listens.
    pub async fn start(
        plan: &Plan,
        folder: PathBuf,
        binary: &Path,
        machine: &Machine,
        postgres: &Postgres,
        database: &str,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let time = Stopwatch::start();
        let redis = RedisPair::start(&folder, plan.sync, machine).await?;
        let mut installation = Self {
            time: time.clone(),
            services: Vec::new(),
            ways_to_redis: Vec::new(),
            ways_to_postgres: Vec::new(),
            pool: postgres.pool(database)?,
            database_url: postgres.url(database),
            binary: binary.to_owned(),
            sync: plan.sync,
            redis: Mutex::new(redis),
            redis_ground: Mutex::default(),
            folder,
        };
        for place in 0..PROCESSES {
            let to_redis = Proxy::to(installation.redis.lock().await.socket()).await?;
            let to_postgres = Proxy::to(postgres.socket()?).await?;
            let redis = format!("redis://127.0.0.1:{}", to_redis.port());
            let database = Postgres::url_behind(to_postgres.port(), database);
            let service = Service::new(
                place,
                binary.to_owned(),
                arguments(plan, place),
                variables(place, redis, database),
                &installation.folder,
                machine.clock.as_ref(),
                time.clone(),
            )?;
            installation.services.push(service);
            installation.ways_to_redis.push(to_redis);
            installation.ways_to_postgres.push(to_postgres);
        }
        for service in &installation.services {
            service.start().await?;
        }
        for service in &installation.services {
            service.listens().await?;
        }
        installation.time.restart();
        Ok(installation)
    }

    /// Processes that answer requests.
    pub fn doors(&self) -> &[Service] {
        &self.services[..APIS]
    }

    /// All ways to Redis lead to the server on this socket.
    pub fn lead_to(&self, socket: &Path) {
        for way in &self.ways_to_redis {
            way.lead_to(socket.to_owned());
        }
    }

    /// Starts processes again that have ended. Never returns.
    pub async fn supervise(&self) {
        let [a, b, c, d] = [0, 1, 2, 3].map(|place: usize| self.services[place].supervise());
        tokio::join!(a, b, c, d);
    }
}

/// Signs tokens that the processes accept.
#[derive(Clone)]
pub struct Signer(std::sync::Arc<Tokens>);

impl Default for Signer {
    fn default() -> Self {
        Self(Tokens::new(&SecretString::from(SECRET)).into())
    }
}

impl Signer {
    /// A token of this user.
    pub fn user(&self, user: i64) -> String {
        self.issue(Grants::user(user))
    }

    /// A token of an administrator.
    pub fn admin(&self) -> String {
        self.issue(Grants::administrator(1))
    }

    fn issue(&self, grants: Grants) -> String {
        let expires_at = Clock::System.now() + chrono::TimeDelta::days(TOKEN_DAYS);
        self.0.issue(grants, expires_at)
    }
}

fn variables(place: usize, redis: String, database: String) -> Vec<(String, String)> {
    [
        ("FLASH_SALE_REDIS_URL", redis),
        ("FLASH_SALE_DATABASE_URL", database),
        ("FLASH_SALE_TOKEN_SECRET", SECRET.to_owned()),
        ("RUST_BACKTRACE", "1".to_owned()),
        ("TZ", ZONES[place].to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn arguments(plan: &Plan, place: usize) -> Vec<String> {
    let role = if place < APIS { "api" } else { "worker" };
    let window = plan.payment_window_s.to_string();
    let mut words =
        vec!["serve", "--roles", role, "--listen", "127.0.0.1:0", "--key-prefix", PREFIX];
    words.extend(["--lanes", LANES, "--database-connections", "6"]);
    // A busy machine is no fault of the plan.
    words.extend(["--redis-timeout-ms", "2000", "--claim-wait-ms", "1500"]);
    words.extend(["--database-timeout-ms", "3000"]);
    words.extend(["--payment-window-s", window.as_str(), "--in-process-gateway"]);
    words.extend(["--reconcile-period-ms", "3000"]);
    if place >= APIS {
        words.extend(["--admin-listen", "127.0.0.1:0"]);
    }
    if plan.is_replicated && place < APIS {
        words.extend(["--durability", "replica"]);
    }
    words.into_iter().map(str::to_owned).collect()
}
