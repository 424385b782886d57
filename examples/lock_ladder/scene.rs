//! What every rung plays on: a Redis and a Postgres of its own.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use flash_sale::base::shutdown::Shutdown;
use flash_sale::kit::lock::owner::OwnerLocks;
use flash_sale::kit::lock::reentrant::ReentrantLocks;
use flash_sale::kit::redis::Redis;
use private_servers::{PrivateServers, Settings, Sync};
use redis::FromRedisValue;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::time::Instant;
use uuid::Uuid;

/// More than anything takes here.
pub const LONG: Duration = Duration::from_secs(20);

/// The servers, and connections to them.
pub struct Scene {
    servers: PrivateServers,
    folder: PathBuf,
    pub redis: Redis,
    pub pool: PgPool,
    pub shutdown: Shutdown,
}

impl Scene {
    /// Starts the servers.
    pub async fn set() -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("fs-ladder-{}", Uuid::new_v4().simple()));
        let servers = PrivateServers::start(&folder, &Settings::new(Sync::Off)).await?;
        let redis = Redis::new(servers.redis_url())?;
        // Two connections: who waits in the database holds one of them.
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
        Ok(Self { servers, folder, redis, pool, shutdown: Shutdown::default() })
    }

    /// Stops them.
    pub async fn strike(self) -> anyhow::Result<()> {
        ensure!(self.shutdown.stop(LONG).await, "a task goes on");
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

    /// `SET key value NX PX lease_ms`: whether we have it now.
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
        OwnerLocks::new(self.redis.clone(), lease, self.shutdown.clone())
    }

    pub fn reentrant_locks(&self, lease: Duration) -> ReentrantLocks {
        ReentrantLocks::new(self.redis.clone(), lease, self.shutdown.clone())
    }

    /// What the lock protects, as it is now.
    pub async fn protected(&self) -> anyhow::Result<String> {
        Ok(sqlx::query_scalar("SELECT value FROM protected").fetch_one(&self.pool).await?)
    }
}

/// One command, given as words.
pub async fn ask<T: FromRedisValue>(redis: &Redis, words: &[&str]) -> anyhow::Result<T> {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    redis.query(&command).await.with_context(|| words.join(" "))
}
