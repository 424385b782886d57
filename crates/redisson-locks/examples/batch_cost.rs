//! The cost of a batch's locks for Redis and for the client, in CPU time per lock, taken and released.
//!
//! `cargo run --release -p redisson-locks --example batch_cost [locks]`
//!
//! The program starts a Redis of its own on a Unix socket, once with each `appendfsync`. The rows of a table take turns,
//! forwards and backwards, and the table has the medians, because the machine has other work. Beside the locks stand two
//! parts of their cost: the names alone, sent twice to a script that does nothing, and one look at each name in either
//! script. No script that takes and releases each lock for itself costs less than the second.

use std::fs;
use std::time::Duration;

use anyhow::Context;
use private_servers::testing::RedisServer;
use redis::aio::MultiplexedConnection;
use redis::{Client, InfoDict, Script};
use redisson_locks::{Names, ReentrantLocks, Settings, Tasks};

/// Locks of one measurement, unless the program is told another number.
const LOCKS: usize = 64_000;
const ROUNDS: usize = 6;
/// Locks in a call.
const CALLS: [usize; 2] = [128, 1_000];

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    NamesAlone,
    OneLookAtEach,
    /// With a name formatted for each lock to take it, and once more to ask for it.
    Strings,
    Volatile,
    Persisted,
}

const SUBJECTS: [Subject; 5] = [
    Subject::NamesAlone,
    Subject::OneLookAtEach,
    Subject::Volatile,
    Subject::Strings,
    Subject::Persisted,
];

/// Per lock.
#[derive(Clone, Copy, Default)]
struct Cost {
    redis_us: f64,
    client_us: f64,
    /// Bytes in the append-only file.
    bytes: f64,
}

struct Rig {
    redis: MultiplexedConnection,
    locks: ReentrantLocks,
    nothing: Script,
    look: Script,
    /// User of the next lock, so that no name comes twice.
    next_user: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let locks = std::env::args().nth(1).map_or(Ok(LOCKS), |number| number.parse());
    let locks = locks.context("the argument is a number of locks")?.max(CALLS[1]);
    println!(
        "| appendfsync | locks in a call | batch | Redis CPU, us | client CPU, us | bytes appended |"
    );
    println!("|---|---|---|---|---|---|");
    for sync in ["always", "everysec"] {
        let server = RedisServer::start(&["--appendonly", "yes", "--appendfsync", sync]);
        let mut rig = Rig::new(&server).await?;
        for call in CALLS {
            for (subject, Cost { redis_us, client_us, bytes }) in rig.turns(locks, call).await? {
                println!(
                    "| {sync} | {call} | {} | {redis_us:.2} | {client_us:.2} | {bytes:.0} |",
                    subject.name()
                );
            }
        }
    }
    Ok(())
}

impl Subject {
    fn name(self) -> &'static str {
        match self {
            Self::NamesAlone => "the names alone",
            Self::OneLookAtEach => "one look at each",
            Self::Strings => "volatile, by `try_acquire_batch`",
            Self::Volatile => "volatile",
            Self::Persisted => "persisted",
        }
    }
}

impl Rig {
    async fn new(server: &RedisServer) -> anyhow::Result<Self> {
        let client = Client::open(server.url())?;
        let redis = client.get_multiplexed_async_connection().await?;
        let settings = Settings { lease: Duration::from_secs(2), ..Settings::default() };
        let locks = ReentrantLocks::new(redis.clone(), client, settings, Tasks::default());
        let nothing = Script::new("#!lua flags=allow-oom\nreturn 0");
        let look = Script::new(
            "#!lua flags=allow-oom\nfor _, name in ipairs(KEYS) do redis.call('EXISTS', name) end return 0",
        );
        Ok(Self { redis, locks, nothing, look, next_user: 1_000_000 })
    }

    /// The median of each row.
    async fn turns(&mut self, locks: usize, call: usize) -> anyhow::Result<Vec<(Subject, Cost)>> {
        let mut all: Vec<(Subject, Vec<Cost>)> =
            SUBJECTS.map(|subject| (subject, Vec::new())).into();
        for _ in 0..ROUNDS {
            for (subject, costs) in &mut all {
                costs.push(self.measure(*subject, locks, call).await?);
            }
            all.reverse();
        }
        Ok(all.into_iter().map(|(subject, costs)| (subject, median(costs))).collect())
    }

    async fn measure(
        &mut self,
        subject: Subject,
        locks: usize,
        call: usize,
    ) -> anyhow::Result<Cost> {
        let calls = locks / call;
        // Once in peace, so that the script is known.
        self.take_and_release(subject, call).await?;
        let (redis, bytes) = self.used().await?;
        let client = client_cpu()?;
        for _ in 0..calls {
            self.take_and_release(subject, call).await?;
        }
        let client = client_cpu()? - client;
        let (redis_after, bytes_after) = self.used().await?;
        let each = |all: f64| all / (calls * call) as f64;
        Ok(Cost {
            redis_us: each((redis_after - redis) * 1e6),
            client_us: each(client * 1e6),
            bytes: each(bytes_after - bytes),
        })
    }

    async fn take_and_release(&mut self, subject: Subject, call: usize) -> anyhow::Result<()> {
        let users = self.next_user..self.next_user + call;
        self.next_user += call;
        let name = |user| format!("fs:{{0}}:rlock:order:{user}");
        if subject == Subject::Strings {
            let guard = self.locks.try_acquire_batch(users.clone().map(name).collect()).await?;
            anyhow::ensure!(users.map(name).all(|name| guard.holds(&name)), "they are free");
            guard.release().await;
            return Ok(());
        }
        let mut names = Names::with_capacity(call, 32 * call);
        for user in users {
            names.push(format_args!("fs:{{0}}:rlock:order:{user}"));
        }
        let script = match subject {
            Subject::NamesAlone => &self.nothing,
            Subject::OneLookAtEach => &self.look,
            _ => {
                let batch = self.locks.batch(names);
                let is_volatile = subject == Subject::Volatile;
                let batch = if is_volatile { batch.volatile() } else { batch };
                let guard = batch.try_acquire().await?;
                anyhow::ensure!((0..call).all(|at| guard.holds_at(at)), "they are free");
                guard.release().await;
                return Ok(());
            }
        };
        let mut both = script.prepare_invoke();
        for name in names.iter() {
            both.key(name);
        }
        for _ in 0..2 {
            let _: i64 = both.invoke_async(&mut self.redis).await?;
        }
        Ok(())
    }

    /// CPU seconds of Redis, and the bytes that it has appended.
    async fn used(&self) -> anyhow::Result<(f64, f64)> {
        let info: InfoDict = redis::cmd("INFO")
            .arg(&["cpu", "persistence"])
            .query_async(&mut self.redis.clone())
            .await?;
        let value = |name: &str| info.get::<f64>(name).context("INFO has it");
        let cpu = value("used_cpu_user")? + value("used_cpu_sys")?;
        Ok((cpu, value("aof_current_size")?))
    }
}

/// CPU seconds of this process, which has one thread.
fn client_cpu() -> anyhow::Result<f64> {
    let on_cpu = fs::read_to_string("/proc/self/schedstat")?;
    let nanoseconds: f64 = on_cpu.split_whitespace().next().context("three numbers")?.parse()?;
    Ok(nanoseconds / 1e9)
}

fn median(mut costs: Vec<Cost>) -> Cost {
    costs.sort_by(|a, b| a.redis_us.total_cmp(&b.redis_us));
    costs[costs.len() / 2]
}
