//! `flash-sale-bench drain`: how fast a backlog becomes rows, beside raw COPY of the same rows; and what a buyer costs in
//! Redis once everything is written.
//!
//! A service that only sells fills the order log. Then a second process, which only writes, empties it. So the figures
//! are the writer's alone: no claim is made meanwhile. The two measurements of a round take turns from round to round.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use redis::InfoDict;

use super::binary;
use super::session::with_target;
use crate::arguments::client::ClientArguments;
use crate::arguments::{DrainArguments, FILLING_CONNECTIONS};
use crate::load::pace::Pace;
use crate::load::scenario::Scenario;
use crate::measure::bench::Bench;
use crate::measure::ceiling::{Batches, Ceiling};
use crate::measure::progress::Progress;
use crate::report;
use crate::results::drain::{Drain, DrainReport, Round};
use crate::results::machine::Machine;
use crate::service::cpu::{CpuTimes, Processes};
use crate::service::target::Target;
use crate::service::verdict::{DRAIN_WITHIN, Judge};
use crate::void::Void;
use flash_sale::base::config::Config;
use flash_sale::base::shutdown::{Shutdown, StopRequests};
use flash_sale::sale::log::OrderLog;

/// Time between two looks at the backlog.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Milliseconds for one answer while the log is filled.
const TIMEOUT_MS: u64 = 5_000;

/// Measures, prints, and writes what was asked for.
pub async fn run(
    arguments: DrainArguments,
    stop_requests: &mut StopRequests,
) -> anyhow::Result<()> {
    let shutdown = Shutdown::default();
    let binary = binary::of_service(arguments.binary.as_deref())?;
    let mut plan = Plan::new(arguments.orders, arguments.rounds, &arguments.service_args, binary);
    plan.batch_orders_max = arguments.batch_orders_max.unwrap_or(plan.batch_orders_max);
    plan.connections = arguments.connections;
    let (machine, drain) = plan.run(shutdown, stop_requests).await?;
    let report = DrainReport { machine, service_args: arguments.service_args, drain };
    println!("{}", report::table::of_drain(&report));
    if let Some(file) = &arguments.json {
        std::fs::write(file, serde_json::to_string_pretty(&report)?)?;
    }
    report.drain.verdict.believe()
}

/// Number and size of the backlogs, and their service.
pub struct Plan {
    orders: u64,
    rounds: u32,
    service_args: String,
    binary: PathBuf,
    batch_orders_max: u32,
    /// Connections that fill the log.
    connections: u32,
}

impl Plan {
    /// With batches as large as a worker makes them of itself.
    pub fn new(orders: u64, rounds: u32, service_args: &str, binary: PathBuf) -> Self {
        let service_args = service_args.to_owned();
        let batch_orders_max = default_batch();
        let connections = FILLING_CONNECTIONS;
        Self { orders, rounds, service_args, binary, batch_orders_max, connections }
    }

    /// Starts a service, measures, and ends it.
    pub async fn run(
        &self,
        shutdown: Shutdown,
        stop_requests: &mut StopRequests,
    ) -> anyhow::Result<(Machine, Drain)> {
        let client = ClientArguments::closed(self.connections, TIMEOUT_MS);
        // The duration is unknown; the bar counts rounds.
        let progress = Progress::new(f64::from(self.rounds));
        let mut bench = Bench::new(client, progress, shutdown.clone());
        bench.progress.say("starting a service that only sells");
        let arguments = format!(
            "{} --roles api --backlog-orders-max {}",
            self.service_args,
            self.orders.saturating_mul(2)
        );
        let starting = Target::start("", &self.binary, &arguments, &shutdown);
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
        let mut ceiling = Ceiling::create(servers.database_url()).await?;
        let mut rounds = Vec::new();
        for round in 0..self.rounds {
            rounds.push(self.round(round, bench, target, &mut ceiling).await?);
        }
        ceiling.drop_table().await?;
        bench.progress.say("comparing Redis with Postgres");
        let verdict = target.judge().await?;
        Ok((machine, Drain::of(self.batch_orders_max, rounds, verdict)))
    }

    async fn round(
        &self,
        round: u32,
        bench: &mut Bench,
        target: &mut Target,
        ceiling: &mut Ceiling,
    ) -> anyhow::Result<Round> {
        let bytes_before = used_memory(judge(target)?).await?;
        let fill = Pace::Burst { requests: self.orders };
        bench.slice(target, Scenario::Win, fill).await?;
        let coupon = target.books.last().and_then(|book| book.coupons.first().copied());
        let coupon = coupon.context("a win has a coupon")?;
        let batch = usize::try_from(self.batch_orders_max)?;
        let batches = Batches::read(judge(target)?, coupon, batch).await?;
        bench.progress.say(format!("{} orders become rows", batches.rows));
        // A drift hits both alike.
        let (written, copied) = if round.is_multiple_of(2) {
            let written = self.write(bench, target, batches.rows).await?;
            (written, copy(target, ceiling, &batches).await?)
        } else {
            let copied = copy(target, ceiling, &batches).await?;
            (self.write(bench, target, batches.rows).await?, copied)
        };
        let orders = batches.rows;
        let bytes = settled_memory(judge(target)?).await? - bytes_before;
        let per_second = |took: Duration| orders as f64 / took.as_secs_f64();
        Ok(Round {
            orders,
            seconds: written.0.as_secs_f64(),
            rows_per_second: per_second(written.0),
            cpu_us_per_row: written.1,
            copied_per_second: per_second(copied.0),
            copy_cpu_us_per_row: copied.1,
            redis_bytes_per_buyer: bytes / orders as f64,
        })
    }

    /// A worker writes the backlog. How long that took, and CPU time for each row.
    async fn write(
        &self,
        bench: &Bench,
        target: &mut Target,
        orders: u64,
    ) -> anyhow::Result<(Duration, CpuTimes)> {
        let arguments =
            format!("{} --batch-orders-max {}", self.service_args, self.batch_orders_max);
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        let watched = judge(target)?.clone();
        let before = target.processes.read();
        let (worker, took) = tokio::try_join!(
            target.start_worker(&self.binary, &arguments, &bench.shutdown),
            until_written(&watched, orders),
        )?;
        let processes = Processes { service: vec![worker], ..target.processes.clone() };
        let before = CpuTimes { service: before.service.map(|_| 0.0), ..before };
        let cpu = CpuTimes::per_request(before, processes.read(), orders);
        target.stop_worker().await?;
        Ok((took, cpu))
    }
}

async fn copy(
    target: &Target,
    ceiling: &mut Ceiling,
    batches: &Batches,
) -> anyhow::Result<(Duration, CpuTimes)> {
    let before = target.processes.read();
    let took = ceiling.copy(batches).await?;
    Ok((took, CpuTimes::per_request(before, target.processes.read(), batches.rows)))
}

/// From the first row to the last acknowledged entry.
async fn until_written(judge: &Judge, orders: u64) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut first_row = began;
    loop {
        let left = judge.in_flight().await?;
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
        tokio::time::sleep(LOOK_EVERY).await;
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

fn judge(target: &Target) -> anyhow::Result<&Judge> {
    target.judge.as_ref().context("private servers are judged")
}

/// Default of the service's setting.
fn default_batch() -> u32 {
    let command = Config::augment_args(clap::Command::new("serve"));
    let arguments = command.get_arguments();
    let batch = arguments.into_iter().find(|argument| argument.get_id() == "batch_orders_max");
    let default =
        batch.and_then(|batch| batch.get_default_values().first()?.to_str()?.parse().ok());
    default.expect("the setting has a default")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_is_the_service_s_own() {
        assert!((1..=10_000).contains(&default_batch()));
    }
}
