//! Postgres, with a database for each run.
//!
//! The servers are kept by `flash-sale private-servers`, which has a way to start a killed Postgres again on its files.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use private_servers::testing::DataFolder;
use serde::Deserialize;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::time::timeout;

use super::keep::command_of;

/// Time for the servers to start: the first start makes a cluster.
const START_WITHIN: Duration = Duration::from_secs(180);
/// A folder in memory.
const MEMORY: &str = "/dev/shm";
/// Database that the binary migrates, and that each run's database is copied from.
const TEMPLATE: &str = "flash_sale";

/// The server of Postgres. Gone with its folder when it is dropped.
#[derive(Debug)]
pub struct Postgres {
    binary: PathBuf,
    keeper: Option<Child>,
    at: Addresses,
    folder: DataFolder,
}

#[derive(Clone, Debug, Deserialize)]
struct Addresses {
    redis_url: String,
    database_url: String,
    postgres_pid: i32,
}

impl Postgres {
    /// Starts a server with a migrated database. Each job of this process has one of its own.
    pub async fn start(binary: PathBuf, job: u8) -> anyhow::Result<Self> {
        let folder = format!("explorer-{}-{job}", std::process::id());
        let folder = DataFolder::at(place().join(folder));
        let (keeper, at) = keep(&binary, &folder).await?;
        let postgres = Self { binary, keeper: Some(keeper), at, folder };
        let urls =
            ["--redis-url", &postgres.at.redis_url, "--database-url", &postgres.at.database_url];
        let migrate = command_of(&postgres.binary).arg("migrate").args(urls).output().await?;
        if !migrate.status.success() {
            bail!("`flash-sale migrate` failed: {}", String::from_utf8_lossy(&migrate.stderr));
        }
        Ok(postgres)
    }

    /// Makes the database of a run.
    pub async fn create(&self, name: &str) -> anyhow::Result<()> {
        self.administrate(format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}")).await
    }

    /// Drops the database of a run.
    pub async fn drop_database(&self, name: &str) -> anyhow::Result<()> {
        self.administrate(format!("DROP DATABASE {name} WITH (FORCE)")).await
    }

    /// Makes a database without a schema.
    pub async fn create_empty(&self, name: &str) -> anyhow::Result<()> {
        self.administrate(format!("CREATE DATABASE {name}")).await
    }

    async fn administrate(&self, statement: String) -> anyhow::Result<()> {
        let options = self.options("postgres")?;
        let mut connection = PgConnection::connect_with(&options).await?;
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await?;
        Ok(connection.close().await?)
    }

    fn options(&self, database: &str) -> anyhow::Result<PgConnectOptions> {
        Ok(self.at.database_url.parse::<PgConnectOptions>()?.database(database))
    }

    /// Connections of our own to the database of a run, past the proxies.
    pub fn pool(&self, database: &str) -> anyhow::Result<PgPool> {
        let pool = PgPoolOptions::new().max_connections(3);
        Ok(pool.acquire_timeout(Duration::from_secs(10)).connect_lazy_with(self.options(database)?))
    }

    /// URL of the database of a run behind a proxy at this port.
    pub fn url_behind(port: u16, database: &str) -> String {
        format!("postgres://{TEMPLATE}@127.0.0.1:{port}/{database}?sslmode=disable")
    }

    /// URL of the database of a run, past the proxies.
    pub fn url(&self, database: &str) -> String {
        self.at.database_url.replacen(&format!("/{TEMPLATE}?"), &format!("/{database}?"), 1)
    }

    /// The server's socket.
    pub fn socket(&self) -> anyhow::Result<PathBuf> {
        let options = self.options(TEMPLATE)?;
        let folder = options.get_socket().context("Postgres listens on a socket")?;
        Ok(folder.join(format!(".s.PGSQL.{}", options.get_port())))
    }

    /// SIGKILL for the server, and for its keeper, which would notice.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut keeper) = self.keeper.take() {
            keeper.kill().await?;
            kill(Pid::from_raw(self.at.postgres_pid), Signal::SIGKILL)?;
        }
        Ok(())
    }

    /// Starts the server again after [`kill`](Self::kill).
    pub async fn ensure_up(&mut self) -> anyhow::Result<()> {
        if self.keeper.is_none() {
            let (keeper, at) = keep(&self.binary, &self.folder).await?;
            (self.keeper, self.at) = (Some(keeper), at);
        }
        Ok(())
    }
}

/// A folder in memory, where there is one: a busy disk would be the slowest part of an installation.
fn place() -> PathBuf {
    let memory = Path::new(MEMORY);
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

async fn keep(binary: &Path, folder: &DataFolder) -> anyhow::Result<(Child, Addresses)> {
    let mut command = command_of(binary);
    command.args(["private-servers", "--log", "error", "--data-dir", folder.text()]);
    command.env("TMPDIR", place());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.process_group(0);
    let mut keeper =
        command.spawn().with_context(|| format!("{} can't be run", binary.display()))?;
    let output = keeper.stdout.take().context("it is piped")?;
    let mut lines = BufReader::new(output).lines();
    let line =
        timeout(START_WITHIN, lines.next_line()).await.context("Postgres did not start")??;
    let at = serde_json::from_str(&line.context("the private servers ended at their start")?)?;
    Ok((keeper, at))
}
