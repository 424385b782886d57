//! Locks in the memory of one process, and the other processes that the rungs need.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis::aio::MultiplexedConnection;
use redisson_locks::Tasks;
use sqlx::PgPool;
use tokio::sync::{Barrier, Mutex};

use crate::scene::{LONG, Scene, ask, connect, reentrant_locks};
use crate::{Shown, several};

/// This program once more, in another role. Killed when it is dropped.
pub struct Other {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Other {
    pub fn start(role: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["child", role]).args(arguments);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().context("piped")?);
        Ok(Self { process, input, output })
    }

    /// The next line of its output.
    pub fn says(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        ensure!(self.output.read_line(&mut line)? > 0, "the other process ended");
        Ok(line.trim().to_owned())
    }

    /// Lets it go on: it waits for the end of its input.
    pub fn goes_on(&mut self) {
        self.input = None;
    }

    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.process.id())?), signal)?)
    }

    /// SIGKILL, and gone when this returns.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// The work of another process, by its role.
pub async fn child(role: &str, arguments: &[&str]) -> anyhow::Result<()> {
    match (role, arguments) {
        ("mutex", [redis]) => inside_a_mutex(&connect(redis).await?).await,
        ("setnx", [redis, key]) => {
            let _: bool = ask(&connect(redis).await?, &["SETNX", key, "mine"]).await?;
            println!("taken");
            wait_for_end_of_input().await
        }
        ("redlock", [database, nodes @ ..]) => late_under_redlock(database, nodes).await,
        ("fenced", [database, redis]) => late_with_a_token(database, redis).await,
        _ => bail!("there is no role {role}"),
    }
}

async fn wait_for_end_of_input() -> anyhow::Result<()> {
    tokio::task::spawn_blocking(|| std::io::stdin().lines().for_each(drop)).await?;
    Ok(())
}

async fn inside_a_mutex(redis: &MultiplexedConnection) -> anyhow::Result<()> {
    let mutex = Mutex::new(());
    let _inside = mutex.lock().await;
    let inside: i64 = ask(redis, &["INCR", "inside"]).await?;
    println!("{inside}");
    wait_for_end_of_input().await
}

/// Looks whether its lock is valid, falls asleep, and writes.
async fn late_under_redlock(database: &str, nodes: &[&str]) -> anyhow::Result<()> {
    let pool = PgPool::connect(database).await?;
    let locks = several::redlock_on(nodes, &Tasks::default())?;
    let guard = locks.acquire("printer", Duration::ZERO, LONG).await?.context("it is free")?;
    ensure!(!guard.lost().is_cancelled(), "it is ours");
    println!("valid");
    wait_for_end_of_input().await?;
    sqlx::query("UPDATE protected SET value = 'late'").execute(&pool).await?;
    println!("written");
    Ok(())
}

async fn late_with_a_token(database: &str, redis: &str) -> anyhow::Result<()> {
    let pool = PgPool::connect(database).await?;
    let locks = reentrant_locks(redis, several::LEASE, &Tasks::default()).await?;
    let lock = locks.fenced_lock("fenced printer");
    let guard = lock.try_acquire(&locks.holder()).await?.context("it is free")?;
    println!("{}", guard.fencing_token().context("a fenced lock")?);
    wait_for_end_of_input().await?;
    let written = several::write_fenced(&pool, &guard, "late").await?;
    guard.lost().cancelled().await;
    println!("{}", if written { "written" } else { "refused" });
    Ok(())
}

pub async fn mutex_in_the_process(scene: &Scene) -> anyhow::Result<Shown> {
    let mut others = [
        Other::start("mutex", &[scene.redis_url()])?,
        Other::start("mutex", &[scene.redis_url()])?,
    ];
    let inside = [others[0].says()?, others[1].says()?];
    ensure!(inside.contains(&"2".to_owned()), "one at a time: {inside:?}");
    Shown::new(
        "two processes, each with its mutex locked, were inside together",
        "a lock has to be where all processes can see it",
    )
}

pub async fn lock_for_each_request(_: &Scene) -> anyhow::Result<Shown> {
    // No request passes it alone.
    let both_inside = Arc::new(Barrier::new(2));
    let request = || {
        let both_inside = both_inside.clone();
        async move {
            let lock = Mutex::new(());
            let _inside = lock.lock().await;
            both_inside.wait().await;
        }
    };
    let met = tokio::time::timeout(LONG, async { tokio::join!(request(), request()) }).await;
    ensure!(met.is_ok(), "one kept the other out");
    Shown::new(
        "two requests met inside, each had locked a lock that the other could not know",
        "a lock is a name that all processes agree on, not an object",
    )
}
