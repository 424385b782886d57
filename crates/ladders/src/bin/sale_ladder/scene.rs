//! The stage of a design: its stores, and the moments at which requests wait for each other.

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ladders::servers::connect;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{Client, FromRedisValue, Script};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Barrier;
use tokio::time::sleep;

/// Connections of a program to Postgres, as many as a service usually has.
pub const CONNECTIONS: u32 = 16;

/// Work of a process that plays a design.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Task {
    /// Key of the rung.
    pub rung: String,
    pub redis_url: String,
    pub database_url: String,
    /// The message engine, for a rung that has one.
    pub engine_url: Option<String>,
    pub units: i64,
    /// First user of the crowd.
    pub first_user: i64,
    /// Users of the crowd; each tries twice.
    pub users: i64,
    /// Requests at the same time.
    pub at_once: usize,
    /// Requests come in rounds, and the design holds each round at its weak point.
    pub in_step: bool,
    /// Processes that play the design.
    pub processes: u32,
    /// The process is killed while requests are in the gap of the design.
    pub dies_in_gap: bool,
    /// An earlier process with this task was killed.
    pub again: bool,
    /// Time after which no further request is sent, in milliseconds.
    pub until_ms: u64,
}

/// The stores, and the moments.
pub struct Scene {
    pub task: Task,
    pub pool: PgPool,
    pub redis: MultiplexedConnection,
    client: Client,
    moment: Barrier,
    meetings: AtomicU64,
}

impl Scene {
    pub async fn open(task: Task) -> anyhow::Result<Self> {
        let pool =
            PgPoolOptions::new().max_connections(CONNECTIONS).connect(&task.database_url).await?;
        let client = Client::open(task.redis_url.as_str())?;
        let redis = connect(&client).await?;
        let moment = Barrier::new(task.at_once);
        Ok(Self { task, pool, redis, client, moment, meetings: AtomicU64::new(0) })
    }

    /// Of a crowd in step, each request of the round waits here for all others. Any other crowd goes on.
    pub async fn together(&self) {
        if self.task.in_step {
            self.moment.wait().await;
        }
    }

    /// Between two steps that should be one. In a process that is to die here, nothing goes on.
    pub async fn gap(&self) {
        if self.task.dies_in_gap {
            pending().await
        }
    }

    /// Of two crowds in step, a request of one process waits here for a request of the other.
    pub async fn meet_the_other_process(&self) -> anyhow::Result<()> {
        if !self.task.in_step || self.task.processes == 1 {
            return Ok(());
        }
        let place = format!("meeting {}", self.meetings.fetch_add(1, Ordering::Relaxed));
        let mut here: u32 = self.ask(&["INCR", &place]).await?;
        while here < self.task.processes {
            sleep(Duration::from_micros(300)).await;
            here = self.ask(&["GET", &place]).await?;
        }
        Ok(())
    }

    /// One command for Redis, given as words.
    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> anyhow::Result<T> {
        Ok(redis::cmd(words[0]).arg(&words[1..]).query_async(&mut self.redis.clone()).await?)
    }

    /// One call of a script on the stock, its buyers and the log.
    pub async fn decide(&self, script: &Script, user: i64) -> anyhow::Result<bool> {
        let mut call = script.prepare_invoke();
        let call = call.key("stock").key("buyers").key("log").arg(user);
        Ok(call.invoke_async(&mut self.redis.clone()).await?)
    }

    /// A connection of its own, for commands that wait.
    pub async fn connection(&self) -> anyhow::Result<MultiplexedConnection> {
        connect(&self.client).await
    }

    /// A connection that listens.
    pub async fn listener(&self) -> anyhow::Result<PubSub> {
        Ok(self.client.get_async_pubsub().await?)
    }

    /// Writes an order. A user who has one gets no second where the table has its unique index.
    pub async fn write_order(&self, user: i64) -> anyhow::Result<bool> {
        let insert = "INSERT INTO ladder.orders (user_id) VALUES ($1) ON CONFLICT DO NOTHING";
        let inserted = sqlx::query(insert).bind(user).execute(&self.pool).await?;
        Ok(inserted.rows_affected() == 1)
    }

    /// Takes a unit if one is left, and writes the order, in one statement.
    pub async fn take_and_write(&self, user: i64) -> anyhow::Result<bool> {
        let statement =
            "WITH taken AS (UPDATE ladder.stock SET units = units - 1 WHERE units > 0 RETURNING 1)
             INSERT INTO ladder.orders (user_id) SELECT $1 FROM taken";
        let inserted = sqlx::query(statement).bind(user).execute(&self.pool).await?;
        Ok(inserted.rows_affected() == 1)
    }

    /// Orders that a user has.
    pub async fn orders_of(&self, user: i64) -> anyhow::Result<i64> {
        let count = "SELECT count(*) FROM ladder.orders WHERE user_id = $1";
        Ok(sqlx::query_scalar(count).bind(user).fetch_one(&self.pool).await?)
    }

    /// Units that are left in Postgres.
    pub async fn units(&self) -> anyhow::Result<i32> {
        Ok(sqlx::query_scalar("SELECT units FROM ladder.stock").fetch_one(&self.pool).await?)
    }
}
