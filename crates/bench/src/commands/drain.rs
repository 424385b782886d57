//! `flash-sale-bench drain`: how fast a backlog becomes rows, beside raw COPY of the same rows; and what a buyer costs in
//! Redis once everything is written.
//!
//! A service that only sells fills the order log. Then a second process, which only writes, empties it. So the figures
//! are the writer's alone: no claim is made meanwhile. The two measurements of a round take turns from round to round.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use flash_sale::base::config::Config;
use flash_sale::base::shutdown::{Shutdown, StopRequests};
use flash_sale::log::OrderLog;
use flash_sale::store::ids::CouponId;
use redis::InfoDict;

use super::session::{self, with_target};
use crate::arguments::{ClientArguments, DrainArguments};
use crate::figures::{Void, say};
use crate::load::pace::Pace;
use crate::load::scenario::Scenario;
use crate::measure::bench::Bench;
use crate::measure::ceiling::{Batches, Ceiling};
use crate::report;
use crate::results::drain::{Copied, Drain, DrainReport, Round};
use crate::results::machine::Machine;
use crate::service::cpu::{CpuTimes, Processes};
use crate::service::target::Target;
use crate::service::verdict::{DRAIN_WITHIN, Judge};

/// Time between two looks at the backlog, and between two counts of rows, which cost more.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const COUNT_EVERY: Duration = Duration::from_millis(100);
/// Connections that fill the log: more share a sync of Redis.
const FILLING_CONNECTIONS: u32 = 256;

/// Measures, prints, and writes what was asked for.
pub async fn run(
    arguments: DrainArguments,
    stop_requests: &mut StopRequests,
) -> anyhow::Result<()> {
    let plan = Plan {
        orders: arguments.orders,
        rounds: arguments.rounds,
        service_args: arguments.service.service_args.clone(),
        binary: session::binary(&arguments.service)?,
        beside_copy: true,
    };
    let (machine, drain) = plan.run(Shutdown::default(), stop_requests).await?;
    let report = DrainReport { machine, service_args: plan.service_args, drain };
    println!("{}", report::table::of_drain(&report));
    session::write_json(arguments.service.json.as_ref(), &report)?;
    report.drain.verdict.believe()
}

/// Number and size of the backlogs, and their service.
pub struct Plan {
    pub orders: u64,
    pub rounds: u32,
    pub service_args: String,
    pub binary: PathBuf,
    /// Whether COPY of the same rows is measured, too. It reads the log, so the service has to be of this version.
    pub beside_copy: bool,
}

impl Plan {
    /// Starts a service, measures, and ends it.
    pub async fn run(
        &self,
        shutdown: Shutdown,
        stop_requests: &mut StopRequests,
    ) -> anyhow::Result<(Machine, Drain)> {
        let mut bench = Bench::new(ClientArguments::closed(FILLING_CONNECTIONS), shutdown.clone());
        let backlog = self.orders.saturating_mul(2);
        let arguments = format!("{} --roles api --backlog-orders-max {backlog}", self.service_args);
        let starting = Target::start("drain", &self.binary, &arguments, &shutdown);
        with_target(&mut bench, starting, stop_requests, async |bench, target| {
            target.writes = false;
            self.measure(bench, target).await
        })
        .await
    }

    async fn measure(
        &self,
        bench: &mut Bench,
        target: &mut Target,
    ) -> anyhow::Result<(Machine, Drain)> {
        let machine = Machine::look(target).await?;
        let servers = target.servers.as_ref().context("the servers are private")?;
        let mut ceiling = match self.beside_copy {
            true => Some(Ceiling::create(servers.database_url()).await?),
            false => None,
        };
        let mut rounds = Vec::new();
        for round in 0..self.rounds {
            rounds.push(self.round(round, bench, target, ceiling.as_mut()).await?);
        }
        if let Some(ceiling) = ceiling {
            ceiling.drop_table().await?;
        }
        say("comparing Redis with Postgres");
        Ok((machine, Drain::of(rounds, target.verdict().await?)))
    }

    async fn round(
        &self,
        round: u32,
        bench: &mut Bench,
        target: &mut Target,
        ceiling: Option<&mut Ceiling>,
    ) -> anyhow::Result<Round> {
        let bytes_before = used_memory(target.judge()?).await?;
        bench.slice(target, Scenario::Win, Pace::All { requests: self.orders }).await?;
        let book = target.books.last().context("a slice has a book")?;
        let orders = book.accepted;
        let coupon = book.coupon.context("a win has a coupon")?;
        say(format!("{orders} orders become rows"));
        let Some(ceiling) = ceiling else {
            let (took, cpu) = self.write(bench, target, Some(coupon), orders).await?;
            return Ok(Round::of(orders, took, cpu, None, None));
        };
        let batches = Batches::read(target.judge()?, coupon, default_batch()).await?;
        let orders = batches.rows;
        // A drift hits both alike.
        let (written, copied) = if round.is_multiple_of(2) {
            let written = self.write(bench, target, None, orders).await?;
            (written, copy(target, ceiling, &batches).await?)
        } else {
            let copied = copy(target, ceiling, &batches).await?;
            (self.write(bench, target, None, orders).await?, copied)
        };
        let bytes = settled_memory(target.judge()?).await? - bytes_before;
        Ok(Round::of(orders, written.0, written.1, Some(copied), Some(bytes)))
    }

    /// A worker writes the backlog. How long that took, and CPU time for each row.
    async fn write(
        &self,
        bench: &Bench,
        target: &mut Target,
        counted: Option<CouponId>,
        orders: u64,
    ) -> anyhow::Result<(Duration, CpuTimes)> {
        let watched = target.judge()?.clone();
        let before = target.processes.read();
        let (worker, took) = tokio::try_join!(
            target.start_worker(&self.binary, &self.service_args, &bench.shutdown),
            async {
                match counted {
                    Some(coupon) => until_counted(&watched, coupon, orders).await,
                    None => until_written(&watched, orders).await,
                }
            },
        )?;
        let processes = Processes { service: vec![worker], ..target.processes.clone() };
        let before = CpuTimes { service: before.service.map(|_| 0.0), ..before };
        let cpu = CpuTimes::per_request(before, processes.read(), orders);
        target.stop_worker().await?;
        Ok((took, cpu))
    }
}

async fn copy(target: &Target, ceiling: &mut Ceiling, batches: &Batches) -> anyhow::Result<Copied> {
    let before = target.processes.read();
    let took = ceiling.copy(batches).await?;
    let cpu = CpuTimes::per_request(before, target.processes.read(), batches.rows);
    let per_second = batches.rows as f64 / took.as_secs_f64();
    Ok(Copied { per_second, postgres_us_per_row: cpu.postgres })
}

/// From the first row to the last acknowledged entry.
async fn until_written(judge: &Judge, orders: u64) -> anyhow::Result<Duration> {
    let left = async || judge.in_flight().await;
    until_none_is_left(left, orders, LOOK_EVERY).await
}

/// From the first row to the last one, by the word of Postgres alone: another version logs its orders in another format.
async fn until_counted(judge: &Judge, coupon: CouponId, orders: u64) -> anyhow::Result<Duration> {
    let left = async || Ok(orders.saturating_sub(judge.count(coupon).await?.unsigned_abs()));
    until_none_is_left(left, orders, COUNT_EVERY).await
}

async fn until_none_is_left(
    left: impl AsyncFn() -> anyhow::Result<u64>,
    orders: u64,
    look_every: Duration,
) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut first_row = began;
    loop {
        let left = left().await?;
        let now = Instant::now();
        if left >= orders {
            first_row = now;
        }
        if left == 0 {
            return Ok(now - first_row);
        }
        if now - began > DRAIN_WITHIN {
            let seconds = DRAIN_WITHIN.as_secs();
            return Err(Void(format!("{left} orders were not written within {seconds} s")).into());
        }
        tokio::time::sleep(look_every).await;
    }
}

/// Memory of Redis when no entry of the log is needed any more. The service's own script trims the log, as the worker that
/// is gone did once a second.
async fn settled_memory(judge: &Judge) -> anyhow::Result<f64> {
    for lane in judge.lanes().await? {
        let log = OrderLog::new(judge.redis.clone(), &judge.keys, lane);
        while log.trim().await?.trimmed > 0 {}
    }
    used_memory(judge).await
}

async fn used_memory(judge: &Judge) -> anyhow::Result<f64> {
    let info: InfoDict = judge.redis.query(redis::cmd("INFO").arg("memory")).await?;
    info.get("used_memory").context("Redis doesn't say how much memory it uses")
}

/// Rows in one transaction of the worker, at most: the default of the service's setting.
fn default_batch() -> usize {
    let command = Config::augment_args(clap::Command::new("serve"));
    let arguments = command.get_arguments();
    let batch = arguments.into_iter().find(|argument| argument.get_id() == "batch_orders_max");
    let default =
        batch.and_then(|batch| batch.get_default_values().first()?.to_str()?.parse().ok());
    default.expect("the setting has a default")
}
