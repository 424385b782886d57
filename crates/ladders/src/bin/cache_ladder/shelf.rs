//! The stores of a rung: coupons in Postgres, their copies in Redis, and a counter of queries.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ladders::servers::{Servers, connect};
use redis::aio::MultiplexedConnection;
use redis::{Client, FromRedisValue};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Barrier;
use tokio::time::Instant;

/// Coupons that there are: 1 to this.
pub const COUPONS: i64 = 1_000;
/// Readers of a crowd, which come at the same moment.
pub const READERS: usize = 100;
/// Ids that are made up.
pub const MADE_UP: i64 = 1_000;
/// Copies that are made together.
pub const COPIES: i64 = 200;

/// Outcome of a rung, which no machine changes.
#[derive(Debug)]
pub struct Facts {
    pub reads: u64,
    /// Queries that they cost.
    pub queries: u64,
    /// Readers that were shown an older title than Postgres had, or no coupon where there was one.
    pub old: u64,
    /// Keys in Redis at the end.
    pub keys: u64,
}

/// Times of a rung's reads, of this run on this machine.
#[derive(Debug)]
pub struct Figures {
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
}

/// The stores.
pub struct Shelf {
    redis: MultiplexedConnection,
    pool: PgPool,
    queries: AtomicU64,
    /// Times of the reads in milliseconds.
    reads: Mutex<Vec<f64>>,
    old: AtomicU64,
    barrier: Barrier,
}

impl Shelf {
    /// Empty Redis, and new coupons in Postgres.
    pub async fn set(servers: &Servers) -> anyhow::Result<Self> {
        let redis = connect(&Client::open(servers.redis_url())?).await?;
        let pool = PgPoolOptions::new().max_connections(8).connect(servers.database_url()).await?;
        let tables = format!(
            "DROP TABLE IF EXISTS shelf;
             CREATE TABLE shelf (id bigint PRIMARY KEY, title text NOT NULL);
             INSERT INTO shelf SELECT id, 'old' FROM generate_series(1, {COUPONS}) AS id"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(tables)).execute(&pool).await?;
        let (queries, reads, old) = Default::default();
        let shelf = Self { redis, pool, queries, reads, old, barrier: Barrier::new(READERS) };
        shelf.ask::<()>(&["FLUSHALL"]).await?;
        Ok(shelf)
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

    /// Keeps copies of the title `old`, each for so many milliseconds, in one round trip.
    pub async fn keep_all(&self, copies: impl Iterator<Item = (i64, i64)>) -> anyhow::Result<()> {
        let mut all = redis::pipe();
        for (id, ms) in copies {
            all.cmd("SET").arg(id).arg("old").arg("PX").arg(ms).ignore();
        }
        Ok(all.query_async(&mut self.redis.clone()).await?)
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

    /// Counts and times a read, which is right if the reader is shown this.
    pub async fn shown(
        &self,
        right: Option<&str>,
        read: impl Future<Output = anyhow::Result<Option<String>>>,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        let title = read.await?;
        let took_ms = began.elapsed().as_secs_f64() * 1e3;
        self.reads.lock().expect("no holder of this lock panics").push(took_ms);
        self.old.fetch_add(u64::from(title.as_deref() != right), Ordering::Relaxed);
        Ok(())
    }

    /// A crowd, which reads the first coupon at one moment.
    pub async fn crowd(
        &self,
        read: impl AsyncFn(&Self, i64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let readers = (0..READERS).map(|_| read(self, 1));
        futures_util::future::try_join_all(readers).await.map(drop)
    }

    pub async fn outcome(&self) -> anyhow::Result<(Facts, Figures)> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let keys = self.ask(&["DBSIZE"]).await?;
        let mut times = self.reads.lock().expect("no holder of this lock panics").clone();
        times.sort_by(f64::total_cmp);
        let at = |percent| times[times.len() * percent / 100];
        let mean_ms = times.iter().sum::<f64>() / times.len() as f64;
        let figures = Figures { mean_ms, p50_ms: at(50), p99_ms: at(99) };
        let reads = times.len() as u64;
        let facts = Facts { reads, queries: count(&self.queries), old: count(&self.old), keys };
        Ok((facts, figures))
    }
}
