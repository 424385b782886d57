//! One Redis server.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;
use redis::{FromRedisValue, RedisResult};
use tokio::time::{Instant, sleep, timeout};

use super::keep::Kept;
use crate::plan::Sync;

/// Time for a server to answer after its start.
const START_WITHIN: Duration = Duration::from_secs(60);
/// Time for the answer to a command of ours.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Time for a new append-only file.
const REWRITE_WITHIN: Duration = Duration::from_secs(30);
/// Line of INFO while a new append-only file is written.
const REWRITING: &str = "aof_rewrite_in_progress:1";
const POLL: Duration = Duration::from_millis(10);
/// Size of the small file system below a server's data.
const DISK: &str = "size=64m";
/// Ports of the servers.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Folder of the append-only files.
const FILES: &str = "appendonlydir";

/// A server of Redis with a folder and a port of its own.
#[derive(Debug)]
pub struct RedisNode {
    folder: PathBuf,
    port: u16,
    sync: Sync,
    clock: Option<PathBuf>,
    /// True with a file system of our own below the data.
    is_mounted: bool,
    kept: Option<Kept>,
}

impl RedisNode {
    /// Starts a server in a new folder.
    pub async fn start(
        folder: PathBuf,
        sync: Sync,
        clock: Option<PathBuf>,
        mounts: bool,
    ) -> anyhow::Result<Self> {
        fs::create_dir_all(folder.join("data")).context("no folder for Redis")?;
        let port = free_port()?;
        let is_mounted = mounts && is_mounted(&folder.join("data"));
        let mut node = Self { folder, port, sync, clock, is_mounted, kept: None };
        node.set_clock(0)?;
        node.start_again().await?;
        Ok(node)
    }

    /// The server's socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("redis.sock")
    }

    /// The server's port of 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's process id; `None` while it is down.
    pub fn pid(&self) -> Option<i32> {
        self.kept.as_ref().map(Kept::pid)
    }

    /// Folder of the data.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Folder of the append-only files.
    pub fn files(&self) -> PathBuf {
        self.data().join(FILES)
    }

    /// The append-only file that grows now.
    pub fn growing_file(&self) -> anyhow::Result<PathBuf> {
        let files = fs::read_dir(self.files())?.filter_map(Result::ok).map(|entry| entry.path());
        let grows = |path: &PathBuf| path.to_string_lossy().ends_with(".incr.aof");
        // Older ones have smaller numbers, and vanish soon.
        files
            .filter(grows)
            .max_by_key(|path| fs::metadata(path).and_then(|m| m.modified()).ok())
            .context("there is no append-only file")
    }

    /// True with a file system of our own below the data.
    pub fn has_disk(&self) -> bool {
        self.is_mounted
    }

    /// Sets the server's clock so many seconds off the machine's.
    pub fn set_clock(&self, seconds: i64) -> anyhow::Result<()> {
        set_clock(&self.clock_file(), seconds)
    }

    fn clock_file(&self) -> PathBuf {
        self.folder.join("clock")
    }

    /// Starts a server that is down, on the files that are there.
    pub async fn start_again(&mut self) -> anyhow::Result<()> {
        let _ = fs::remove_file(self.socket());
        let mut variables = Vec::new();
        if let Some(library) = &self.clock {
            variables.push(("LD_PRELOAD".to_owned(), library.display().to_string()));
            variables.push(("CLOCK_SHIFT".to_owned(), self.clock_file().display().to_string()));
        }
        let mut kept =
            Kept::start(Path::new("redis-server"), &self.arguments(), &variables).await?;
        let deadline = Instant::now() + START_WITHIN;
        loop {
            if answered::<String>(&self.socket(), &["PING"]).await.is_ok() {
                break;
            }
            if let Some(status) = kept.ended()? {
                bail!("Redis ended at its start ({status}); {} says why", self.log().display());
            }
            if Instant::now() > deadline {
                bail!("Redis does not answer after its start; see {}", self.log().display());
            }
            sleep(POLL).await;
        }
        self.kept = Some(kept);
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.folder.join("redis.log")
    }

    fn arguments(&self) -> Vec<String> {
        let sync = if self.sync == Sync::Always { "always" } else { "everysec" };
        let text = |path: PathBuf| path.display().to_string();
        let settings = [
            ("port", self.port.to_string()),
            ("bind", "127.0.0.1".to_owned()),
            ("unixsocket", text(self.socket())),
            ("dir", text(self.data())),
            ("logfile", text(self.log())),
            ("appendonly", "yes".to_owned()),
            ("appendfsync", sync.to_owned()),
            ("aof-load-truncated", "yes".to_owned()),
            ("save", String::new()),
            ("maxmemory-policy", "noeviction".to_owned()),
            ("repl-diskless-sync-delay", "0".to_owned()),
            ("set-proc-title", "no".to_owned()),
            ("enable-debug-command", "local".to_owned()),
        ];
        settings.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]).collect()
    }

    /// Writes the append-only file anew, from memory.
    pub async fn rewrite_file(&self) -> anyhow::Result<()> {
        let _: String = self.ask(&["BGREWRITEAOF"]).await?;
        let deadline = Instant::now() + REWRITE_WITHIN;
        while self.ask::<String>(&["INFO", "persistence"]).await?.contains(REWRITING) {
            if Instant::now() > deadline {
                bail!("Redis does not finish its append-only file; see {}", self.log().display());
            }
            sleep(POLL).await;
        }
        Ok(())
    }

    /// SIGKILL. The server is gone when this returns.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        match self.kept.take() {
            Some(mut kept) => kept.kill().await,
            None => Ok(()),
        }
    }

    /// Sends a signal, if the server runs.
    pub fn signal(&self, signal: Signal) {
        if let Some(kept) = &self.kept {
            kept.signal(signal);
        }
    }

    /// True for a server that runs. One that has ended by itself does not.
    pub fn is_up(&mut self) -> bool {
        self.kept.as_mut().is_some_and(|kept| matches!(kept.ended(), Ok(None)))
    }

    /// Starts the server if it does not run.
    pub async fn ensure_up(&mut self) -> anyhow::Result<()> {
        if self.is_up() {
            return Ok(());
        }
        self.kept = None;
        self.start_again().await
    }

    /// The answer to a command.
    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        answered(&self.socket(), words).await
    }
}

impl Drop for RedisNode {
    fn drop(&mut self) {
        self.kept = None;
        if self.is_mounted {
            let _ = umount2(&self.data(), MntFlags::MNT_DETACH);
        }
    }
}

/// The answer of the server on this socket, over a connection of its own.
pub async fn answered<T: FromRedisValue>(socket: &Path, words: &[&str]) -> RedisResult<T> {
    let late = || redis::RedisError::from((redis::ErrorKind::Io, "no answer in time"));
    let asked = async {
        let url = format!("redis+unix://{}", socket.display());
        let client = redis::Client::open(url)?;
        let config = redis::AsyncConnectionConfig::new()
            .set_response_timeout(Some(ANSWER_WITHIN))
            .set_connection_timeout(Some(ANSWER_WITHIN));
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut connection).await
    };
    timeout(ANSWER_WITHIN, asked).await.map_err(|_| late())?
}

/// Sets a clock that processes have mapped. The file keeps its place.
pub fn set_clock(file: &Path, seconds: i64) -> anyhow::Result<()> {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(file)?;
    Ok(file.write_all_at(&seconds.to_ne_bytes(), 0)?)
}

/// A port that is free now, and that no system gives to another program while the server is down: those that systems
/// give away lie above.
fn free_port() -> anyhow::Result<u16> {
    let random = RandomState::new().build_hasher().finish();
    let first = PORTS.start + (random % PORTS.len() as u64) as u16;
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (first..PORTS.end).chain(PORTS).find(is_free).context("no port is free for Redis")
}

fn is_mounted(folder: &Path) -> bool {
    mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), Some(DISK)).is_ok()
}
