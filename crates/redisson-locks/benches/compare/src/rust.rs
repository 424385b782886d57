//! The locks that are written in Rust: those of `redisson-locks`, and the crate `rslock`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use futures_util::future::join_all;
use nix::sys::resource::{UsageWho, getrusage};
use redis::Client;
use redis::aio::MultiplexedConnection;
use redisson_locks::owner::{self, OwnerLocks};
use redisson_locks::redlock::{Redlock, Settings};
use redisson_locks::{ReentrantLocks, Tasks};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::{BATCH, Measured, PERIOD, Servers, url};

const LEASE: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(60);

/// Batches of strings with an owner, for comparison.
const TAKE_STRINGS: &str = "local taken = {} for i, lock in ipairs(KEYS) do
    taken[i] = redis.call('SET', lock, ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0 end return taken";
const RELEASE_STRINGS: &str = "local released = 0 for _, lock in ipairs(KEYS) do
    if redis.call('GET', lock) == ARGV[1] then released = released + redis.call('DEL', lock) end end return released";

pub struct Ours {
    one: MultiplexedConnection,
    reentrant: ReentrantLocks,
    owner: OwnerLocks,
    redlock: Redlock,
    ports: Vec<u16>,
}

/// Runs `turn` in so many tasks for a while.
async fn measure<F>(
    servers: &Servers,
    contenders: usize,
    turn: impl Fn(usize) -> F + Send + Sync + Clone + 'static,
) -> anyhow::Result<Measured>
where
    F: Future<Output = anyhow::Result<u64>> + Send,
{
    let pairs = Arc::new(AtomicU64::new(0));
    let tracker = TaskTracker::new();
    turn(0).await?;
    let client = cpu()?;
    let redis = servers.cpu().await?;
    let began = Instant::now();
    let tasks = (0..contenders).map(|number| {
        let pairs = pairs.clone();
        let turn = turn.clone();
        tracker.spawn(async move {
            while began.elapsed() < PERIOD {
                pairs.fetch_add(turn(number).await?, Ordering::Relaxed);
            }
            anyhow::Ok(())
        })
    });
    for ended in join_all(tasks.collect::<Vec<_>>()).await {
        ended??;
    }
    let took = began.elapsed();
    let pairs = pairs.load(Ordering::Relaxed);
    Ok(Measured { pairs, took, client: cpu()? - client, servers: servers.cpu().await? - redis })
}

/// CPU time of this process.
fn cpu() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let time = |time: nix::sys::time::TimeVal| {
        Duration::from_micros(time.tv_sec() as u64 * 1_000_000 + time.tv_usec() as u64)
    };
    Ok(time(usage.user_time()) + time(usage.system_time()))
}

impl Ours {
    pub async fn new(one: &Servers, five: &Servers) -> anyhow::Result<Self> {
        let tasks = Tasks::default();
        let redis = one.redis[0].clone();
        let settings = Settings {
            lease: LEASE,
            node_timeout: Duration::from_millis(200),
            renewals_max: 100,
            retry_pause_max: Duration::from_millis(20),
        };
        let redlock = Redlock::new(five.redis.clone(), settings, tasks.clone());
        // Servers count when they have been up for a lease.
        redlock.acquire("warm-up", Duration::ZERO, LONG).await?.context("they count")?;
        let client = Client::open(url(one.ports[0]))?;
        let reentrant = redisson_locks::Settings { lease: LEASE, ..Default::default() };
        let plain = owner::Settings { lease: LEASE, ..Default::default() };
        Ok(Self {
            reentrant: ReentrantLocks::new(redis.clone(), client, reentrant, tasks.clone()),
            owner: OwnerLocks::new(redis.clone(), plain, tasks),
            one: redis,
            redlock,
            ports: one.ports.clone(),
        })
    }

    /// The one server of all locks but Redlock.
    fn servers(&self) -> Servers {
        Servers { _running: Vec::new(), ports: self.ports.clone(), redis: vec![self.one.clone()] }
    }

    pub async fn reentrant(&self, contenders: usize, fenced: bool) -> anyhow::Result<Measured> {
        let locks = self.reentrant.clone();
        let lock = if fenced { locks.fenced_lock("fenced") } else { locks.lock("re-entrant") };
        let turn = move |_| {
            let lock = lock.clone();
            let holder = locks.holder();
            async move {
                let guard = lock.acquire(&holder, LONG).await?.context("in time")?;
                guard.release().await?;
                Ok(1)
            }
        };
        measure(&self.servers(), contenders, turn).await
    }

    pub async fn owner(&self, contenders: usize) -> anyhow::Result<Measured> {
        let locks = self.owner.clone();
        let turn = move |_| {
            let locks = locks.clone();
            async move {
                locks.acquire("plain", LONG).await?.context("in time")?.release().await?;
                Ok(1)
            }
        };
        measure(&self.servers(), contenders, turn).await
    }

    pub async fn redlock(&self, five: &Servers, contenders: usize) -> anyhow::Result<Measured> {
        let locks = self.redlock.clone();
        let turn = move |_| {
            let locks = locks.clone();
            async move {
                let guard = locks.acquire("redlock", Duration::ZERO, LONG).await?;
                guard.context("in time")?.release().await;
                Ok(1)
            }
        };
        measure(five, contenders, turn).await
    }

    pub async fn batches(&self) -> anyhow::Result<Measured> {
        let locks = self.reentrant.clone();
        let turn = move |_| {
            let locks = locks.clone();
            async move {
                let names = (0..BATCH).map(|user| format!("fs:{{0}}:rlock:order:{user}")).collect();
                locks.try_acquire_batch(names).await?.release().await;
                Ok(BATCH as u64)
            }
        };
        measure(&self.servers(), 1, turn).await
    }

    pub async fn batches_of_strings(&self) -> anyhow::Result<Measured> {
        let redis = self.one.clone();
        let (take, release) =
            (load(&redis, TAKE_STRINGS).await?, load(&redis, RELEASE_STRINGS).await?);
        let turn = move |_| {
            let redis = redis.clone();
            let take = take.clone();
            let release = release.clone();
            async move {
                let names: Vec<String> =
                    (0..BATCH).map(|user| format!("fs:{{0}}:lock:order:{user}")).collect();
                let owner = uuid::Uuid::new_v4().simple().to_string();
                for (hash, lease) in [(take, Some("2000")), (release, None)] {
                    let mut command = redis::cmd("EVALSHA");
                    command.arg(&hash).arg(names.len()).arg(&names).arg(&owner).arg(lease);
                    let _: redis::Value = command.query_async(&mut redis.clone()).await?;
                }
                Ok(BATCH as u64)
            }
        };
        measure(&self.servers(), 1, turn).await
    }
}

async fn load(redis: &MultiplexedConnection, script: &str) -> anyhow::Result<String> {
    let mut load = redis::cmd("SCRIPT");
    Ok(load.arg("LOAD").arg(script).query_async(&mut redis.clone()).await?)
}

/// With retries as frequent as those of the plain lock.
pub async fn rslock(servers: &Servers, contenders: usize) -> anyhow::Result<Measured> {
    let mut manager =
        rslock::LockManager::new(servers.ports.iter().map(|port| url(*port)).collect());
    manager.set_retry(10_000, Duration::from_millis(20));
    let turn = move |_| {
        let manager = manager.clone();
        async move {
            let lock = manager
                .lock("rslock", LEASE)
                .await
                .map_err(|error| anyhow::anyhow!("{error:?}"))?;
            manager.unlock(&lock).await;
            Ok(1)
        }
    };
    measure(servers, contenders, turn).await
}
