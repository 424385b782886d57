//! More than one Redis, and the limit of any number of them.

use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sys::signal::Signal;
use private_servers::testing::RedisServer;
use redis::Value;
use redisson_locks::redlock::{Redlock, Settings};
use redisson_locks::{Guard, Tasks};
use sqlx::PgPool;
use tokio::time::{Instant, sleep};

use crate::Shown;
use crate::process::Other;
use crate::scene::{LONG, Scene, ask, connect, reconnecting, reentrant_locks};

/// Lease of locks whose holder falls asleep.
pub const LEASE: Duration = Duration::from_millis(1_500);

pub async fn fail_over(scene: &Scene) -> anyhow::Result<Shown> {
    let (mut master, port) = RedisServer::on_tcp(&[]);
    let replica = RedisServer::start(&["--replicaof", &format!("127.0.0.1 {port}")]);
    let operator = connect(&replica.url()).await?;
    let tell = async |words: &[&str]| ask::<Value>(&operator, words).await;
    let deadline = Instant::now() + LONG;
    let follows = |info: Value| -> anyhow::Result<bool> {
        Ok(redis::from_redis_value::<String>(info)?.contains("master_link_status:up"))
    };
    while !follows(tell(&["INFO", "replication"]).await?)? {
        ensure!(Instant::now() < deadline, "the replica never follows");
        sleep(Duration::from_millis(10)).await;
    }
    // The line between the two is down for a moment, and just then the master goes, too.
    tell(&["REPLICAOF", "127.0.0.1", "1"]).await?;
    let anns = reentrant_locks(&master.url(), LONG, &scene.tasks).await?;
    let guard = anns.lock("copied").try_acquire(&anns.holder()).await?.context("it is free")?;
    master.kill();
    tell(&["REPLICAOF", "NO", "ONE"]).await?;
    let bens = reentrant_locks(&replica.url(), LONG, &scene.tasks).await?;
    let second = bens.lock("copied").try_acquire(&bens.holder()).await?.context("unknown there")?;
    ensure!(!guard.lost().is_cancelled(), "she believes it is hers");
    second.release().await?;
    drop(guard);
    Shown::new(
        "the master had granted Ann the lock and died before the replica knew; the replica took over and granted it to Ben",
        "replication is a copy made later: what must not be forgotten needs a majority, or another guard",
    )
}

/// The lock that the rungs take on five servers.
pub fn redlock_on(urls: &[&str], tasks: &Tasks) -> anyhow::Result<Redlock> {
    let nodes = urls.iter().map(|url| reconnecting(url)).collect::<Result<Vec<_>, _>>()?;
    let settings = Settings {
        lease: LEASE,
        node_timeout: Duration::from_millis(400),
        renewals_max: 100,
        retry_pause_max: Duration::from_millis(20),
    };
    Ok(Redlock::new(nodes, settings, tasks.clone()))
}

async fn known_to(servers: &[RedisServer], key: &str) -> anyhow::Result<usize> {
    let mut count = 0;
    for server in servers {
        let one = connect(&server.url()).await?;
        count += usize::from(ask::<bool>(&one, &["EXISTS", key]).await?);
    }
    Ok(count)
}

pub async fn redlock(scene: &Scene) -> anyhow::Result<Shown> {
    let mut servers: Vec<RedisServer> = (0..5).map(|_| RedisServer::start(&[])).collect();
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let ann = redlock_on(&urls, &scene.tasks)?;
    let ben = redlock_on(&urls, &scene.tasks)?;
    // A server counts only when it has been up for a lease, and a majority may be there before the others.
    for url in &urls {
        let alone = redlock_on(&[url], &scene.tasks)?;
        let guard = alone.acquire("warm-up", Duration::ZERO, LONG).await?.context("it counts")?;
        ensure!(guard.release().await, "it is Ann's");
    }
    let refused = ann.try_acquire("majority", LEASE).await?;
    ensure!(refused.is_none() && known_to(&servers, "majority").await? == 0, "too short, and kept");
    let guard = ann.try_acquire("majority", LEASE / 2).await?.context("it is free")?;
    servers[0].kill();
    servers[0].start_again();
    servers[1].pause();
    ensure!(known_to(&servers[2..], "majority").await? == 3, "one forgot it, and one hangs");
    ensure!(ben.try_acquire("majority", Duration::ZERO).await?.is_none(), "he got in");
    ensure!(!guard.lost().is_cancelled() && guard.release().await, "three have it");
    servers[1].resume();
    Shown::new(
        "a lock that was valid for too short a time for the work was released on all five; with enough time it was held, and when one server came back empty and another one hung, Ben was still kept out",
        "a majority doesn't forget. But between a look at the clock and the work, time passes",
    )
}

pub async fn pause_defeats_redlock(scene: &Scene) -> anyhow::Result<Shown> {
    let servers: Vec<RedisServer> = (0..5).map(|_| RedisServer::start(&[])).collect();
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let mut ann = Other::start("redlock", &[&[scene.database_url()][..], &urls].concat())?;
    ensure!(ann.says()? == "valid", "she has looked");
    ann.signal(Signal::SIGSTOP)?;
    let ben = redlock_on(&urls, &scene.tasks)?;
    let guard = ben.acquire("printer", Duration::ZERO, LONG).await?.context("hers runs out")?;
    sqlx::query("UPDATE protected SET value = 'by Ben'").execute(&scene.pool).await?;
    ann.goes_on();
    ann.signal(Signal::SIGCONT)?;
    ensure!(ann.says()? == "written", "she writes");
    ensure!(!guard.lost().is_cancelled(), "the lock is Ben's");
    let value = scene.protected().await?;
    ensure!(value == "late", "{value}");
    guard.release().await;
    Shown::new(
        "Ann looked, her lock was valid; she slept past it, Ben got the lock and wrote; she woke up and wrote over it, with five servers up and all clocks right",
        "no lock can stop a holder that believes to have it; the resource can",
    )
}

/// Writes, unless a larger token has been seen.
pub async fn write_fenced(pool: &PgPool, guard: &Guard, value: &str) -> anyhow::Result<bool> {
    let token = i64::try_from(guard.fencing_token().context("a fenced lock")?)?;
    let update = "UPDATE protected SET value = $1, token = $2 WHERE token <= $2";
    let updated = sqlx::query(update).bind(value).bind(token).execute(pool).await?;
    Ok(updated.rows_affected() == 1)
}

pub async fn fencing_token(scene: &Scene) -> anyhow::Result<Shown> {
    let mut ann = Other::start("fenced", &[scene.database_url(), scene.redis_url()])?;
    let hers: u64 = ann.says()?.parse()?;
    ann.signal(Signal::SIGSTOP)?;
    let locks = scene.reentrant_locks(LEASE).await?;
    let lock = locks.fenced_lock("fenced printer");
    let guard = lock.acquire(&locks.holder(), LONG).await?.context("hers runs out")?;
    let his = guard.fencing_token().context("a fenced lock")?;
    ensure!(his > hers && write_fenced(&scene.pool, &guard, "by Ben").await?, "{hers}, {his}");
    ann.goes_on();
    ann.signal(Signal::SIGCONT)?;
    let answer = ann.says()?;
    let value = scene.protected().await?;
    ensure!(answer == "refused" && value == "by Ben", "{answer}: {value}");
    guard.release().await?;
    Shown::new(
        format!("Ann came late with token {hers}, and the table had seen {his}: refused"),
        "the lock spares work, and the resource decides",
    )
}
