//! The stage of every rung: a Redis and a Postgres of its own.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use private_servers::{PrivateServers, Settings, Sync};
use redis::aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection};
use redis::{Client, FromRedisValue};
use redisson_locks::owner::{self, OwnerLocks};
use redisson_locks::{Connection, ReentrantLocks, Tasks};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Longer than any step takes.
pub const LONG: Duration = Duration::from_secs(20);

/// The servers, and connections to them.
pub struct Scene {
    servers: PrivateServers,
    folder: PathBuf,
    pub redis: MultiplexedConnection,
    pub pool: PgPool,
    pub tasks: Tasks,
    stop: CancellationToken,
}

impl Scene {
    /// Starts the servers.
    pub async fn set() -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("fs-ladder-{}", Uuid::new_v4().simple()));
        let servers = PrivateServers::start(&folder, &Settings::new(Sync::Off)).await?;
        let redis = connect(servers.redis_url()).await?;
        // Two connections: a request that waits in the database holds one of them.
        let options = PgPoolOptions::new().max_connections(2);
        let pool = options.connect(servers.database_url()).await?;
        sqlx::raw_sql(
            "CREATE TABLE shop (units int NOT NULL); INSERT INTO shop VALUES (1);
             CREATE TABLE sold (buyer text NOT NULL);
             CREATE TABLE protected (value text NOT NULL, token bigint NOT NULL);
             INSERT INTO protected VALUES ('nothing', 0)",
        )
        .execute(&pool)
        .await?;
        let stop = CancellationToken::new();
        Ok(Self { servers, folder, redis, pool, tasks: Tasks::new(stop.clone()), stop })
    }

    /// Stops the servers, and removes their data.
    pub async fn strike(self) -> anyhow::Result<()> {
        self.stop.cancel();
        timeout(LONG, self.tasks.ended()).await.context("a task goes on")?;
        self.pool.close().await;
        self.servers.stop().await?;
        Ok(std::fs::remove_dir_all(&self.folder)?)
    }

    pub fn redis_url(&self) -> &str {
        self.servers.redis_url()
    }

    pub fn database_url(&self) -> &str {
        self.servers.database_url()
    }

    /// One command, given as words.
    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> anyhow::Result<T> {
        ask(&self.redis, words).await
    }

    /// `SET key value NX PX lease_ms`: whether the key is the caller's now.
    pub async fn set_nx(&self, key: &str, value: &str, lease: Duration) -> anyhow::Result<bool> {
        let lease_ms = lease.as_millis().to_string();
        let reply: Option<String> = self.ask(&["SET", key, value, "NX", "PX", &lease_ms]).await?;
        Ok(reply.is_some())
    }

    /// Waits until the key has expired.
    pub async fn expires(&self, key: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + LONG;
        while self.ask::<bool>(&["EXISTS", key]).await? {
            ensure!(Instant::now() < deadline, "{key} never expires");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    pub fn owner_locks(&self, lease: Duration) -> OwnerLocks {
        let settings = owner::Settings { lease, ..owner::Settings::default() };
        OwnerLocks::new(self.redis.clone(), settings, self.tasks.clone())
    }

    pub async fn reentrant_locks(&self, lease: Duration) -> anyhow::Result<ReentrantLocks> {
        reentrant_locks(self.redis_url(), lease, &self.tasks).await
    }

    /// The value that the lock protects.
    pub async fn protected(&self) -> anyhow::Result<String> {
        Ok(sqlx::query_scalar("SELECT value FROM protected").fetch_one(&self.pool).await?)
    }
}

/// A client with a connection of its own.
pub async fn reentrant_locks(
    url: &str,
    lease: Duration,
    tasks: &Tasks,
) -> anyhow::Result<ReentrantLocks> {
    let settings = redisson_locks::Settings { lease, ..redisson_locks::Settings::default() };
    let one = connect(url).await?;
    let client = Client::open(url)?;
    Ok(ReentrantLocks::new(one, client, settings, tasks.clone()))
}

pub async fn connect(url: &str) -> anyhow::Result<MultiplexedConnection> {
    Ok(Client::open(url)?.get_multiplexed_async_connection().await?)
}

/// A connection that is made anew when its server has been started anew.
pub fn reconnecting(url: &str) -> anyhow::Result<ConnectionManager> {
    let config = ConnectionManagerConfig::new().set_max_delay(Duration::from_millis(10));
    Ok(ConnectionManager::new_lazy_with_config(Client::open(url)?, config)?)
}

/// One command, given as words.
pub async fn ask<T: FromRedisValue>(redis: &impl Connection, words: &[&str]) -> anyhow::Result<T> {
    let mut command = redis::cmd(words[0]);
    let command = command.arg(&words[1..]);
    command.query_async(&mut redis.clone()).await.with_context(|| words.join(" "))
}
