//! The stores of a rung: coupons in Postgres, their copies in Redis, and a counter of queries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ladders::servers::{Servers, connect};
use redis::aio::MultiplexedConnection;
use redis::{Client, FromRedisValue};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Barrier;

/// Coupons that there are: 1 to this.
pub const COUPONS: i64 = 1_000;
/// Readers that come at the same moment.
pub const CROWD: usize = 100;

/// Outcome of a rung.
#[derive(Debug)]
pub struct Facts {
    /// Reads.
    pub reads: u64,
    /// Queries that they cost.
    pub queries: u64,
    /// Readers that were shown an older title than Postgres had, or no coupon where there was one.
    pub old: u64,
    /// Keys in Redis at the end.
    pub keys: u64,
}

/// The stores.
pub struct Shelf {
    redis: MultiplexedConnection,
    pool: PgPool,
    queries: AtomicU64,
    reads: AtomicU64,
    old: AtomicU64,
    barrier: Barrier,
}

impl Shelf {
    /// Empty Redis, and new coupons in Postgres.
    pub async fn set(servers: &Servers) -> anyhow::Result<Arc<Self>> {
        let redis = connect(&Client::open(servers.redis_url())?).await?;
        let pool = PgPoolOptions::new().max_connections(8).connect(servers.database_url()).await?;
        let tables = format!(
            "DROP TABLE IF EXISTS shelf;
             CREATE TABLE shelf (id bigint PRIMARY KEY, title text NOT NULL);
             INSERT INTO shelf SELECT id, 'old' FROM generate_series(1, {COUPONS}) AS id"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(tables)).execute(&pool).await?;
        let (queries, reads, old) = Default::default();
        let barrier = Barrier::new(CROWD);
        let shelf = Self { redis, pool, queries, reads, old, barrier };
        shelf.ask::<()>(&["FLUSHALL"]).await?;
        Ok(Arc::new(shelf))
    }

    /// The title in Postgres, for a query.
    pub async fn query(&self, id: i64) -> anyhow::Result<Option<String>> {
        self.queries.fetch_add(1, Ordering::Relaxed);
        let query = sqlx::query_scalar("SELECT title FROM shelf WHERE id = $1").bind(id);
        Ok(query.fetch_optional(&self.pool).await?)
    }

    /// Writes a title, of a coupon that is there or a new one.
    pub async fn write(&self, id: i64, title: &str) -> anyhow::Result<()> {
        let write = "INSERT INTO shelf VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET title = $2";
        sqlx::query(write).bind(id).bind(title).execute(&self.pool).await?;
        Ok(())
    }

    /// The copy in Redis.
    pub async fn copy(&self, id: i64) -> anyhow::Result<Option<String>> {
        self.ask(&["GET", &id.to_string()]).await
    }

    /// Keeps a copy for so many milliseconds.
    pub async fn keep(&self, id: i64, title: &str, ms: i64) -> anyhow::Result<()> {
        self.ask(&["SET", &id.to_string(), title, "PX", &ms.to_string()]).await
    }

    /// Deletes the copy.
    pub async fn delete(&self, id: i64) -> anyhow::Result<()> {
        self.ask(&["DEL", &id.to_string()]).await
    }

    /// Any command.
    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> anyhow::Result<T> {
        Ok(redis::cmd(words[0]).arg(&words[1..]).query_async(&mut self.redis.clone()).await?)
    }

    /// Readers of a crowd wait for each other: the worst moment, each time.
    pub async fn together(&self) {
        self.barrier.wait().await;
    }

    /// Counts a read, which was right if the reader was shown this.
    pub fn shown(&self, title: Option<&str>, right: Option<&str>) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.old.fetch_add(u64::from(title != right), Ordering::Relaxed);
    }

    /// A crowd reads at the same moment.
    pub async fn crowd<F>(self: &Arc<Self>, read: impl Fn(Arc<Self>) -> F) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        let readers = (0..CROWD).map(|_| read(self.clone()));
        futures_util::future::try_join_all(readers).await.map(drop)
    }

    /// The outcome.
    pub async fn facts(&self) -> anyhow::Result<Facts> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let keys = self.ask(&["DBSIZE"]).await?;
        let (reads, queries) = (count(&self.reads), count(&self.queries));
        Ok(Facts { reads, queries, old: count(&self.old), keys })
    }
}
