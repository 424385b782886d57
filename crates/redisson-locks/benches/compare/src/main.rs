//! The cost of a lock: pairs of taking and releasing, per second and in CPU time, beside other implementations.
//!
//! One run, one machine, the same Redis for all: only ratios of one run say something. Every measurement is made three
//! times, the implementations taking turns; the table has the medians. The essay `crates/redisson-locks/docs/locks.md`
//! has the figures of one run.

mod redisson;
mod rust;

use std::time::Duration;

use anyhow::Context;
use private_servers::testing::RedisServer;
use redis::aio::MultiplexedConnection;
use redis::{Client, InfoDict};

/// Duration of each measurement.
const PERIOD: Duration = Duration::from_millis(1_500);
const ROUNDS: usize = 3;
const CONTENDERS: usize = 64;
/// Locks in a worker's batch.
const BATCH: usize = 500;

/// Figures of one measurement.
#[derive(Clone, Copy)]
pub struct Measured {
    pairs: u64,
    took: Duration,
    /// CPU time of the client.
    client: Duration,
    /// CPU time of all servers.
    servers: Duration,
}

/// Redis servers, with connections to them.
pub struct Servers {
    _running: Vec<RedisServer>,
    ports: Vec<u16>,
    redis: Vec<MultiplexedConnection>,
}

impl Servers {
    async fn start(count: usize) -> anyhow::Result<Self> {
        // As the service's own: a batch of writes is on disk before it is answered.
        let settings = ["--appendonly", "yes", "--appendfsync", "always"];
        let started: Vec<_> = (0..count).map(|_| RedisServer::on_tcp(&settings)).collect();
        let (running, ports): (Vec<_>, Vec<u16>) = started.into_iter().unzip();
        let mut redis = Vec::new();
        for port in &ports {
            redis.push(Client::open(url(*port))?.get_multiplexed_async_connection().await?);
        }
        Ok(Self { _running: running, ports, redis })
    }

    /// CPU time that they have used.
    async fn cpu(&self) -> anyhow::Result<Duration> {
        let mut sum = 0.0;
        for redis in &self.redis {
            let mut redis = redis.clone();
            let info: InfoDict = redis::cmd("INFO").arg("cpu").query_async(&mut redis).await?;
            for name in ["used_cpu_user", "used_cpu_sys"] {
                sum += info.get::<f64>(name).context("INFO cpu has it")?;
            }
        }
        Ok(Duration::from_secs_f64(sum))
    }
}

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let one = Servers::start(1).await?;
    let five = Servers::start(5).await?;
    let mut java = redisson::start(one.ports[0])?;
    if java.is_none() {
        eprintln!("Java's Redisson is left out: Java, Maven or its packages are missing");
    }
    let ours = rust::Ours::new(&one, &five).await?;
    println!("| lock | contenders | pairs/s | client CPU, us/pair | Redis CPU, us/pair |");
    println!("|---|---|---|---|---|");
    for contenders in [1, CONTENDERS] {
        let mut all: Vec<(&str, Vec<Measured>)> = Vec::new();
        for _ in 0..ROUNDS {
            let mut add = |name, measured| match all.iter_mut().find(|(known, _)| *known == name) {
                Some((_, times)) => times.push(measured),
                None => all.push((name, vec![measured])),
            };
            add("re-entrant", ours.reentrant(contenders, false).await?);
            add("re-entrant, fenced", ours.reentrant(contenders, true).await?);
            add("plain", ours.owner(contenders).await?);
            add("rslock, one server", rust::rslock(&one, contenders).await?);
            if let Some(java) = &mut java {
                add("Redisson", java.measure(&one, contenders).await?);
            }
            add("Redlock, five servers", ours.redlock(&five, contenders).await?);
            add("rslock, five servers", rust::rslock(&five, contenders).await?);
        }
        for (name, times) in all {
            print(name, &contenders.to_string(), times);
        }
    }
    println!("\nBatches of {BATCH}, per lock:\n");
    println!("| layout | | locks/s | client CPU, us | Redis CPU, us |");
    println!("|---|---|---|---|---|");
    let mut strings = Vec::new();
    let mut hashes = Vec::new();
    for _ in 0..ROUNDS {
        strings.push(ours.batches_of_strings().await?);
        hashes.push(ours.batches().await?);
    }
    print("strings with an owner, as before", "", strings);
    print("Redisson's, as here", "", hashes);
    Ok(())
}

fn print(name: &str, contenders: &str, mut times: Vec<Measured>) {
    times.sort_by_key(|measured| measured.pairs * 1_000_000 / measured.took.as_micros() as u64);
    let Measured { pairs, took, client, servers } = times[times.len() / 2];
    let each = |time: Duration| time.as_secs_f64() * 1e6 / pairs as f64;
    let per_second = pairs as f64 / took.as_secs_f64();
    println!(
        "| {name} | {contenders} | {per_second:.0} | {:.1} | {:.1} |",
        each(client),
        each(servers)
    );
}
