//! The stage: stores, a crowd, and the truth afterwards, which is looked up in the stores and not asked of the design.

use std::time::Duration;

use anyhow::{Context, ensure};
use chrono::{DateTime, Utc};
use flash_sale::base::clock::Clock;
use ladders::cpu;
use ladders::engine::Engine;
use ladders::servers::{Servers, connect};
use private_servers::testing::RedisServer;
use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use sqlx::{Connection, PgConnection, PgPool};
use tokio::sync::{Mutex, OnceCell};
use tokio::time::{Instant, sleep, timeout};

use crate::actor::Actor;
use crate::crowd::Summary;
use crate::rung::{Kill, Rung, Till};
use crate::scene::Task;

/// Longer than any wait takes.
const HANGS: Duration = Duration::from_secs(300);
/// Name of the stage's own connections to Postgres, which no other process has.
const STAGE: &str = "stage";

/// Size of a crowd.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    pub users: i64,
    pub units: i64,
    /// Requests at the same time.
    pub at_once: usize,
    pub until: Duration,
}

/// Facts about a rung, which no machine changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Orders in Postgres after the crowd in step.
    pub sold: i64,
    /// Orders beyond the units.
    pub oversold: i64,
    /// A user has two orders.
    pub twice: bool,
    /// The stock at the end.
    pub stock: i64,
    /// Promised orders that never became a row, after the kill.
    pub lost: Option<i64>,
    /// Units that are neither sold nor on offer.
    pub gone: i64,
}

/// Figures of a rung, of this run on this machine.
#[derive(Clone, Debug)]
pub struct Figures {
    pub answers: Summary,
    pub sold: i64,
    pub oversold: i64,
    pub twice: i64,
    pub orders_per_second: f64,
    /// CPU time per request in microseconds: program, Redis, Postgres.
    pub cpu: [f64; 3],
}

/// State of the stores after a crowd.
struct Outcome {
    orders: i64,
    twice: i64,
    stock: i64,
}

/// The stores.
pub struct Stage {
    redis_url: String,
    database_url: String,
    pool: PgPool,
    redis: MultiplexedConnection,
    /// `appendfsync` of this Redis.
    usual_sync: &'static str,
    /// A Redis of the stage's own, where the pair's belongs to another stage.
    _own: Option<RedisServer>,
    /// Follows this Redis while a rung asks for a replica; started for the first that does.
    replica: OnceCell<RedisServer>,
    /// The message engine of the rung, if it has one.
    engine: Mutex<Option<Engine>>,
}

impl Stage {
    /// On this pair of servers, which sync to disk.
    pub async fn durable(servers: &Servers) -> anyhow::Result<Self> {
        let (redis_url, database_url) = (servers.redis_url(), servers.database_url());
        Self::on(redis_url.to_owned(), database_url.to_owned(), "always", None).await
    }

    /// One of several on this Postgres, which don't disturb each other: a database and a Redis of its own. None of them
    /// waits for the disk.
    pub async fn beside_others(servers: &Servers, number: usize) -> anyhow::Result<Self> {
        let (name, url) = (format!("stage_{number}"), servers.database_url());
        let create = format!("CREATE DATABASE {name}");
        let mut connection = PgConnection::connect(url).await?;
        sqlx::raw_sql(sqlx::AssertSqlSafe(create)).execute(&mut connection).await?;
        connection.close().await?;
        let (place, parameters) = url.split_once('?').context("a URL with parameters")?;
        let (server, _database) = place.rsplit_once('/').context("a URL with a database")?;
        let own = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "no"]);
        let stage =
            Self::on(own.url(), format!("{server}/{name}?{parameters}"), "no", Some(own)).await?;
        // An idle Redis notices at its next tick that a consumer has waited long enough.
        stage.ask::<()>(&["CONFIG", "SET", "hz", "100"]).await?;
        Ok(stage)
    }

    async fn on(
        redis_url: String,
        database_url: String,
        usual_sync: &'static str,
        own: Option<RedisServer>,
    ) -> anyhow::Result<Self> {
        let pool = PgPool::connect(&own_url(&database_url)).await?;
        let redis = connect(&redis::Client::open(redis_url.as_str())?).await?;
        let (replica, engine) = (OnceCell::new(), Mutex::default());
        let stage =
            Self { redis_url, database_url, pool, redis, usual_sync, _own: own, replica, engine };
        // A replica is sent the data at once, and not after 5 s in which others might come.
        stage.ask::<()>(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]).await?;
        Ok(stage)
    }

    /// The flaw of a rung, provoked: a crowd that comes in step, and a SIGKILL.
    pub async fn facts(&self, rung: &Rung, crowd: Crowd) -> anyhow::Result<Facts> {
        // Two processes meet for each request: as many users as it takes to sell all units.
        let users = if rung.processes > 1 { crowd.units * 5 / 4 } else { crowd.users };
        let in_step = Crowd { at_once: rung.in_step, users, ..crowd };
        let earlier = i64::from(rung.processes > 1);
        self.make_ready(rung, crowd.units, earlier).await?;
        let held = if rung.slow_writes { Some(self.hold_orders(rung).await?) } else { None };
        let mut actors = self.actors(rung, in_step, true).await?;
        answers_of(&mut actors).await?;
        if let Some(held) = held {
            held.close().await?;
        }
        end(actors).await?;
        let outcome = self.outcome(rung).await?;
        let facts = Facts {
            sold: outcome.orders,
            oversold: (outcome.orders - crowd.units).max(0),
            twice: outcome.twice > 0,
            stock: outcome.stock,
            lost: None,
            gone: gone(&outcome, crowd.units),
        };
        let Some((lost, gone)) = self.kill(rung, crowd).await? else { return Ok(facts) };
        Ok(Facts { lost: Some(lost), gone: gone.max(facts.gone), ..facts })
    }

    /// Lost orders and lost units after a SIGKILL, once another process has had the time to write all that it can.
    async fn kill(&self, rung: &Rung, crowd: Crowd) -> anyhow::Result<Option<(i64, i64)>> {
        if rung.kill == Kill::Never {
            return Ok(None);
        }
        // As many users as it takes to sell all units.
        let crowd = Crowd { users: crowd.units * 5 / 4, ..crowd };
        self.make_ready(rung, crowd.units, 0).await?;
        let holds = rung.kill != Kill::AfterTheAnswers;
        let mut task = self.task(rung, crowd).await;
        task.dies_in_gap = rung.kill == Kill::InTheGap;
        let mut actor = Actor::start(&task).await?;
        let held = if holds { Some(self.hold_orders(rung).await?) } else { None };
        actor.begin().await?;
        let mut promised = match rung.kill {
            Kill::BeforeTheAnswers | Kill::InTheGap => self.until_taken(crowd).await.map(|()| 0)?,
            _ => actor.answers().await?.won,
        };
        if rung.kill == Kill::BeforeTheWrites {
            actor.has_one_in_hand().await?;
        }
        actor.kill().await?;
        if let Some(held) = held {
            self.end_sessions_of_the_dead().await?;
            held.close().await?;
        }
        (task.again, task.dies_in_gap) = (true, false);
        let mut actor = Actor::start(&task).await?;
        if matches!(rung.kill, Kill::BeforeTheAnswers | Kill::InTheGap) {
            actor.begin().await?;
            promised += actor.answers().await?.won;
        }
        actor.rests().await?;
        actor.end().await?;
        let outcome = self.outcome(rung).await?;
        Ok(Some(((promised - outcome.orders).max(0), gone(&outcome, crowd.units))))
    }

    /// The rung as it runs: a crowd as fast as it can.
    pub async fn figures(
        &self,
        rung: &Rung,
        crowd: Crowd,
        servers: &Servers,
    ) -> anyhow::Result<Figures> {
        self.make_ready(rung, crowd.units, 0).await?;
        let mut actors = self.actors(rung, crowd, false).await?;
        let programs: Vec<u32> = actors.iter().map(Actor::pid).collect();
        let ids = servers.process_ids();
        let used = || {
            [
                cpu::microseconds(&programs),
                cpu::microseconds(&[ids.redis]),
                cpu::microseconds(&[ids.postgres]),
            ]
        };
        let (before, began, began_at) = (used(), Instant::now(), Clock::System.now());
        let answers = answers_of(&mut actors).await?;
        for actor in &mut actors {
            actor.rests().await?;
        }
        let (after, rested) = (used(), began.elapsed().as_secs_f64());
        end(actors).await?;
        let outcome = self.outcome(rung).await?;
        let seconds = match rung.till {
            // Looks every few milliseconds.
            Till::Service => rested,
            Till::Postgres | Till::Redis => self.until_the_last_row(began_at).await?,
        };
        let requests = answers.requests.max(1) as f64;
        Ok(Figures {
            sold: outcome.orders,
            oversold: (outcome.orders - crowd.units).max(0),
            twice: outcome.twice,
            orders_per_second: outcome.orders as f64 / seconds,
            cpu: [0, 1, 2].map(|part| (after[part] - before[part]) / requests),
            answers,
        })
    }

    /// Seconds from this time to the last row. A design rests only once its consumers have looked again and waited.
    async fn until_the_last_row(&self, began_at: DateTime<Utc>) -> anyhow::Result<f64> {
        let last = "SELECT extract(epoch FROM max(written_at))::float8 FROM ladder.orders";
        let last: Option<f64> = sqlx::query_scalar(last).fetch_one(&self.pool).await?;
        let began_at = began_at.timestamp_micros() as f64 / 1e6;
        Ok((last.unwrap_or(f64::INFINITY) - began_at).max(f64::EPSILON))
    }

    /// Empty stores with so many units, of which some were sold before the crowd came.
    pub async fn make_ready(&self, rung: &Rung, units: i64, sold: i64) -> anyhow::Result<()> {
        let sync = match rung.level() {
            Some("fsync") => "always",
            Some(_) => "everysec",
            None => self.usual_sync,
        };
        self.ask::<()>(&["CONFIG", "SET", "appendfsync", sync]).await?;
        self.follow(rung.level() == Some("replica")).await?;
        let mut engine = self.engine.lock().await;
        *engine = if rung.by_engine { Some(Engine::start().await?) } else { None };
        if rung.till == Till::Service {
            return Ok(());
        }
        self.ask::<()>(&["FLUSHALL"]).await?;
        self.ask::<()>(&["SET", "stock", &units.to_string()]).await?;
        let index = if rung.unique { "UNIQUE" } else { "" };
        let left = units - sold;
        let schema = format!(
            "DROP SCHEMA IF EXISTS ladder CASCADE;
             CREATE SCHEMA ladder;
             CREATE TABLE ladder.stock (units int NOT NULL, version int NOT NULL);
             INSERT INTO ladder.stock VALUES ({left}, 0);
             CREATE TABLE ladder.orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, user_id bigint NOT NULL,
                 written_at timestamptz NOT NULL DEFAULT clock_timestamp());
             CREATE {index} INDEX one_for_each_user ON ladder.orders (user_id);
             INSERT INTO ladder.orders (user_id) SELECT 0 FROM generate_series(1, {sold})"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(schema)).execute(&self.pool).await?;
        Ok(())
    }

    /// Has the replica follow this Redis, which otherwise listens on its socket alone; or has it follow none.
    async fn follow(&self, is_asked_for: bool) -> anyhow::Result<()> {
        if !is_asked_for && !self.replica.initialized() {
            return Ok(());
        }
        let replica = self.replica.get_or_init(async || RedisServer::start(&[])).await;
        let mut replica = connect(&redis::Client::open(replica.url())?).await?;
        let mut order = redis::cmd("REPLICAOF");
        if !is_asked_for {
            order.arg("NO").arg("ONE").query_async::<()>(&mut replica).await?;
            return self.ask(&["CONFIG", "SET", "port", "0"]).await;
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        self.ask::<()>(&["CONFIG", "SET", "port", &port]).await?;
        order.arg("127.0.0.1").arg(&port).query_async::<()>(&mut replica).await?;
        let follows = async {
            while self.ask::<i64>(&["WAIT", "1", "100"]).await? == 0 {}
            anyhow::Ok(())
        };
        timeout(HANGS, follows).await.context("the replica doesn't follow")?
    }

    pub async fn task(&self, rung: &Rung, crowd: Crowd) -> Task {
        Task {
            rung: rung.key.to_owned(),
            redis_url: self.redis_url.clone(),
            database_url: self.database_url.clone(),
            engine_url: self.engine.lock().await.as_ref().map(|engine| engine.url().to_owned()),
            units: crowd.units,
            first_user: 1,
            users: crowd.users,
            at_once: crowd.at_once,
            in_step: false,
            processes: rung.processes,
            dies_in_gap: false,
            again: false,
            until_ms: u64::try_from(crowd.until.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// The processes of a rung, each with its part of the crowd.
    async fn actors(&self, rung: &Rung, crowd: Crowd, in_step: bool) -> anyhow::Result<Vec<Actor>> {
        let processes = i64::from(rung.processes);
        let mut actors = Vec::new();
        for process in 0..processes {
            let users = crowd.users / processes;
            let first_user = 1 + process * users;
            let task = Task { first_user, users, in_step, ..self.task(rung, crowd).await };
            actors.push(Actor::start(&task).await?);
        }
        Ok(actors)
    }

    /// Locks the table of orders, as a long migration does, until the connection is closed.
    pub async fn hold_orders(&self, rung: &Rung) -> anyhow::Result<PgConnection> {
        let table = if rung.till == Till::Service { "orders" } else { "ladder.orders" };
        let mut connection = PgConnection::connect(&own_url(&self.database_url)).await?;
        let lock = format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
        sqlx::raw_sql(sqlx::AssertSqlSafe(lock)).execute(&mut connection).await?;
        Ok(connection)
    }

    /// Ends the sessions that a killed process has left in Postgres: else a statement that waits, or has been sent and not
    /// begun, would be carried out after all.
    async fn end_sessions_of_the_dead(&self) -> anyhow::Result<()> {
        let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE datname = current_database() AND backend_type = 'client backend' AND application_name <> $1";
        let all_ended = async {
            while sqlx::query_scalar::<_, i64>(ended).bind(STAGE).fetch_one(&self.pool).await? > 0 {
                sleep(Duration::from_millis(5)).await;
            }
            anyhow::Ok(())
        };
        timeout(HANGS, all_ended).await.context("a session goes on")?
    }

    /// Waits until each request that comes at once has taken a unit, and waits for the table.
    async fn until_taken(&self, crowd: Crowd) -> anyhow::Result<()> {
        let left = crowd.units - i64::try_from(crowd.at_once)?;
        let taken = async {
            while self.ask::<i64>(&["GET", "stock"]).await? > left {
                sleep(Duration::from_millis(1)).await;
            }
            anyhow::Ok(())
        };
        timeout(HANGS, taken).await.context("the crowd doesn't come")?
    }

    async fn outcome(&self, rung: &Rung) -> anyhow::Result<Outcome> {
        let of = match rung.till {
            Till::Service => "orders WHERE coupon_id = (SELECT max(id) FROM coupons)",
            Till::Postgres | Till::Redis => "ladder.orders",
        };
        let count = format!(
            "SELECT coalesce(sum(n), 0)::bigint, count(*) FILTER (WHERE n > 1)
             FROM (SELECT count(*) AS n FROM {of} GROUP BY user_id) AS of_users"
        );
        let (orders, twice) =
            sqlx::query_as(sqlx::AssertSqlSafe(count)).fetch_one(&self.pool).await?;
        Ok(Outcome { orders, twice, stock: self.stock(rung).await? })
    }

    async fn stock(&self, rung: &Rung) -> anyhow::Result<i64> {
        match rung.till {
            Till::Postgres => {
                let units = sqlx::query_scalar("SELECT units::bigint FROM ladder.stock");
                Ok(units.fetch_one(&self.pool).await?)
            }
            Till::Redis => self.ask(&["GET", "stock"]).await,
            Till::Service => {
                let last = sqlx::query_scalar("SELECT max(id) FROM coupons");
                let last: i64 = last.fetch_one(&self.pool).await?;
                let keys: Vec<String> = self.ask(&["KEYS", &format!("fs:*:coupon:{last}")]).await?;
                ensure!(keys.len() == 1, "the sale has {} keys", keys.len());
                self.ask(&["HGET", &keys[0], "stock"]).await
            }
        }
    }

    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> anyhow::Result<T> {
        Ok(redis::cmd(words[0]).arg(&words[1..]).query_async(&mut self.redis.clone()).await?)
    }
}

/// The address of Postgres for the stage's own connections.
fn own_url(database_url: &str) -> String {
    format!("{database_url}&application_name={STAGE}")
}

fn gone(outcome: &Outcome, units: i64) -> i64 {
    (units - outcome.orders - outcome.stock.max(0)).max(0)
}

/// Sends the crowd to all processes at the same moment.
async fn answers_of(actors: &mut [Actor]) -> anyhow::Result<Summary> {
    for actor in &mut *actors {
        actor.begin().await?;
    }
    let mut all = Summary::default();
    for actor in actors {
        let one = actor.answers().await?;
        let (before, requests) = (all.requests as f64, one.requests as f64);
        let mean_ms =
            (all.mean_ms * before + one.mean_ms * requests) / (before + requests).max(1.0);
        all = Summary {
            requests: all.requests + one.requests,
            won: all.won + one.won,
            mean_ms,
            p99_ms: all.p99_ms.max(one.p99_ms),
            seconds: all.seconds.max(one.seconds),
            cut: all.cut || one.cut,
        };
    }
    Ok(all)
}

/// Ends the processes once they rest.
async fn end(actors: Vec<Actor>) -> anyhow::Result<()> {
    for mut actor in actors {
        actor.rests().await?;
        actor.end().await?;
    }
    Ok(())
}
