//! The run: a process that sells orders and lets them expire, watched from outside.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use flash_sale::sale::claim::outcome::ClaimOutcome;
use flash_sale::sale::ids::UserId;
use ladders::cpu;
use ladders::servers::{Servers, connect};
use ladders::service::Service;
use sqlx::PgPool;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// Time in which an order has to be paid.
pub const WINDOW_S: &str = "6";
/// Time over which the claims are spread, so that the orders are not all due at one moment.
const CLAIMING: Duration = Duration::from_secs(2);
/// Longer than any wait takes.
const HANGS: Duration = Duration::from_secs(120);
/// First word of a process: all orders are rows.
const SOLD: &str = "sold";

/// Figures of a run.
pub struct Cost {
    /// Time from the end of an order's window to its expiry: median, 99th percentile, largest.
    pub late_ms: [f64; 3],
    /// CPU time for an order in microseconds, beyond that of an idle service: program, Redis, Postgres.
    pub cpu: [f64; 3],
    /// Bytes of the index of due orders for an order that waits.
    pub index_bytes: f64,
}

/// The stores.
pub struct Timers<'a> {
    servers: &'a Servers,
    pool: PgPool,
}

/// Plays the service in this process: sells so many orders, says so, and goes on until its input ends.
pub async fn play(redis_url: &str, database_url: &str, orders: i64) -> anyhow::Result<()> {
    let settings = ["--payment-window-s", WINDOW_S];
    let service = Service::start(redis_url, database_url, &settings).await?;
    if orders > 0 {
        let coupon = service.create_coupon(orders).await?;
        let pause = CLAIMING / u32::try_from(orders)?;
        let began = Instant::now();
        for user in 1..=orders {
            let outcome = service.app.claims.claim(coupon, UserId::new(user)?).await?;
            ensure!(matches!(outcome, ClaimOutcome::Accepted(_)), "{outcome:?}");
            tokio::time::sleep_until(began + pause * u32::try_from(user)?).await;
        }
        service.rest().await?;
    }
    println!("{SOLD}");
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    while input.next_line().await?.is_some() {}
    std::process::exit(0)
}

impl<'a> Timers<'a> {
    pub async fn new(servers: &'a Servers) -> anyhow::Result<Self> {
        Ok(Self { servers, pool: PgPool::connect(servers.database_url()).await? })
    }

    /// Lets so many orders expire.
    pub async fn expire(&self, orders: i64) -> anyhow::Result<Cost> {
        let process = self.start(orders).await?;
        let index = "SELECT pg_relation_size('orders_due')::float8";
        let index_bytes: f64 = sqlx::query_scalar(index).fetch_one(&self.pool).await?;
        ensure!(self.count("status <> 'unpaid'").await? == 0, "an order is due too early");
        let (began, begin) = (Instant::now(), self.used(&process));
        self.until_over(orders).await?;
        let end = self.used(&process);
        // The same service for the same time, without orders.
        sleep(began.elapsed()).await;
        let idle = self.used(&process);
        let late = "SELECT percentile_cont(ARRAY[0.5, 0.99, 1]) WITHIN GROUP
                 (ORDER BY extract(epoch FROM expired_at - pay_by)::float8 * 1000) FROM orders";
        let late_ms: Vec<f64> = sqlx::query_scalar(late).fetch_one(&self.pool).await?;
        let cpu = [0, 1, 2].map(|part| {
            let of_idle = idle[part] - end[part];
            ((end[part] - begin[part] - of_idle) / orders as f64).max(0.0)
        });
        end_of(process).await?;
        let late_ms = late_ms.try_into().map_err(|_| anyhow::anyhow!("three quantiles"))?;
        Ok(Cost { late_ms, cpu, index_bytes: index_bytes / orders as f64 })
    }

    /// Kills the process while its orders expire, and starts another one. Orders that never expire, and units that never
    /// come back.
    pub async fn kill(&self, orders: i64) -> anyhow::Result<[i64; 2]> {
        let mut process = self.start(orders).await?;
        let expires = async {
            while self.count("status = 'expired'").await? == 0 {
                sleep(Duration::from_millis(1)).await;
            }
            anyhow::Ok(())
        };
        timeout(HANGS, expires).await.context("no order expires")??;
        process.kill().await?;
        let process = self.start(0).await?;
        // What does not come to its end in this time is lost.
        let _ = self.until_over(orders).await;
        let unpaid = self.count("status = 'unpaid'").await?;
        let units = orders - self.stock().await?;
        end_of(process).await?;
        Ok([unpaid, units])
    }

    /// Starts a process that sells so many orders, and waits until they are rows.
    async fn start(&self, orders: i64) -> anyhow::Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("play").args([self.servers.redis_url(), self.servers.database_url()]);
        command.arg(orders.to_string()).kill_on_drop(true);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = process.stdout.take().context("piped")?;
        let mut words = BufReader::new(output).lines();
        let word = timeout(HANGS, words.next_line());
        let word = word.await.context("the service sells nothing")??;
        ensure!(word.as_deref() == Some(SOLD), "the service says {word:?}");
        Ok(process)
    }

    /// Returns once all orders of the last coupon have expired, and all its units are on offer again.
    async fn until_over(&self, orders: i64) -> anyhow::Result<()> {
        let over = async {
            while self.count("status = 'expired'").await? < orders || self.stock().await? < orders {
                sleep(Duration::from_millis(20)).await;
            }
            anyhow::Ok(())
        };
        timeout(HANGS, over).await.context("not all orders expire")?
    }

    /// Orders of the last coupon with this condition.
    async fn count(&self, condition: &str) -> anyhow::Result<i64> {
        let count = format!(
            "SELECT count(*) FROM orders WHERE coupon_id = (SELECT max(id) FROM coupons) AND {condition}"
        );
        Ok(sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(&self.pool).await?)
    }

    /// Units of the last coupon that are on offer.
    async fn stock(&self) -> anyhow::Result<i64> {
        let last = sqlx::query_scalar("SELECT max(id) FROM coupons");
        let last: i64 = last.fetch_one(&self.pool).await?;
        let mut redis = connect(&redis::Client::open(self.servers.redis_url())?).await?;
        let pattern = format!("fs:*:coupon:{last}");
        let keys: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(&mut redis).await?;
        ensure!(keys.len() == 1, "the sale has {} keys", keys.len());
        Ok(redis::cmd("HGET").arg(&keys[0]).arg("stock").query_async(&mut redis).await?)
    }

    /// CPU time so far: program, Redis, Postgres.
    fn used(&self, process: &Child) -> [f64; 3] {
        let ids = self.servers.process_ids();
        [process.id().unwrap_or_default(), ids.redis, ids.postgres]
            .map(|id| cpu::microseconds(&[id]))
    }
}

/// Ends a process, which ends with its input.
async fn end_of(mut process: Child) -> anyhow::Result<()> {
    drop(process.stdin.take());
    timeout(HANGS, process.wait()).await.context("the service doesn't end")??;
    Ok(())
}
