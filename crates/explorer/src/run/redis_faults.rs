//! Faults of the server of Redis: its process and its files.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::breaker::Breaker;
use crate::facts::{Loss, Ms};
use crate::plan::{Act, Fault, Sync};
use crate::world::RedisPair;

/// Time by which `appendfsync everysec` may be late with a write, in milliseconds.
const EVERYSEC_LATE_MS: Ms = 2_000;
/// Time by which a replica may be late, in milliseconds.
const REPLICA_LATE_MS: Ms = 1_000;
/// Delay of a slow sync, in microseconds.
const SLOW_SYNC_US: &str = "200000";
/// Time for `strace` to let go.
const DETACH_WITHIN: Duration = Duration::from_secs(10);

impl Breaker {
    /// Breaks the server of Redis from the beginning of the fault to its end.
    pub(super) async fn break_redis_server(&self, act: Act) -> anyhow::Result<()> {
        let _ground = self.installation.redis_ground.lock().await;
        match act.fault {
            Fault::RedisKill => self.kill_redis(act).await,
            Fault::RedisPause => {
                self.installation.redis.lock().await.master().signal(Signal::SIGSTOP);
                self.installation.time.reaches(act.end_ms).await;
                self.installation.redis.lock().await.master().signal(Signal::SIGCONT);
                Ok(())
            }
            Fault::AofCutBack => self.cut_file_back(act).await,
            Fault::OlderFile => self.put_older_files(act).await,
            Fault::Promotion => self.promote(act).await,
            Fault::Resync => self.resync(act).await,
            Fault::MemorySnapshot => self.go_back_in_memory(act).await,
            Fault::DiskFull => self.fill_disk(act).await,
            Fault::SyncFails => self.inject(act, "error=EIO").await,
            _ => self.inject(act, &format!("delay_enter={SLOW_SYNC_US}")).await,
        }
    }

    fn sync(&self) -> Sync {
        self.installation.sync
    }

    /// The earliest time of a claim that a server which is killed now has not in its file.
    fn unwritten_since(&self, now: Ms) -> Option<Ms> {
        (self.sync() == Sync::EverySecond).then_some(now - EVERYSEC_LATE_MS)
    }

    async fn kill_redis(&self, act: Act) -> anyhow::Result<()> {
        let time = &self.installation.time;
        let since = {
            let mut redis = self.installation.redis.lock().await;
            let since = self.unwritten_since(time.now());
            redis.master_mut().kill().await?;
            since
        };
        let lost_at = time.now();
        time.reaches(act.end_ms).await;
        let back_at = time.now();
        if let Some(kept_until) = since {
            let fault = act.fault;
            self.loses(Loss::new(fault, kept_until, (lost_at, back_at)));
        }
        self.installation.redis.lock().await.master_mut().ensure_up().await
    }

    /// Kills the server, lets `change` its files, and starts it again.
    async fn restart_on(
        &self,
        act: Act,
        kept_until: Ms,
        change: impl FnOnce(&RedisPair) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let time = &self.installation.time;
        let mut redis = self.installation.redis.lock().await;
        redis.master_mut().kill().await?;
        let lost_at = time.now();
        let changed = change(&redis);
        let back_at = time.now();
        let fault = act.fault;
        self.loses(Loss::new(fault, kept_until, (lost_at, back_at)));
        redis.master_mut().ensure_up().await?;
        changed
    }

    async fn cut_file_back(&self, act: Act) -> anyhow::Result<()> {
        let time = &self.installation.time;
        let (file, length, kept_until) = {
            let redis = self.installation.redis.lock().await;
            let now = time.now();
            let file = redis.master().growing_file()?;
            let length = fs::metadata(&file)?.len();
            (file, length, self.unwritten_since(now).unwrap_or(now))
        };
        time.reaches(act.end_ms).await;
        self.restart_on(act, kept_until, |_| {
            let file = fs::OpenOptions::new().write(true).open(&file)?;
            anyhow::ensure!(file.metadata()?.len() >= length, "the file has been written anew");
            Ok(file.set_len(length)?)
        })
        .await
    }

    async fn put_older_files(&self, act: Act) -> anyhow::Result<()> {
        let time = &self.installation.time;
        let copy = self.installation.folder.join(format!("older-files-{}", act.begin_ms));
        let kept_until = {
            let redis = self.installation.redis.lock().await;
            let now = time.now();
            copy_folder(&redis.master().files(), &copy)?;
            self.unwritten_since(now).unwrap_or(now)
        };
        time.reaches(act.end_ms).await;
        self.restart_on(act, kept_until, |redis| {
            fs::remove_dir_all(redis.master().files())?;
            copy_folder(&copy, &redis.master().files())
        })
        .await
    }

    async fn promote(&self, act: Act) -> anyhow::Result<()> {
        let time = &self.installation.time;
        let kept_until = time.now() - REPLICA_LATE_MS;
        self.installation.redis.lock().await.detach().await?;
        time.reaches(act.end_ms).await;
        let mut redis = self.installation.redis.lock().await;
        redis.master_mut().kill().await?;
        let (lost_at, back_at) = (time.now(), time.now());
        let _: String = redis.replica().ask(&["REPLICAOF", "NO", "ONE"]).await?;
        redis.swap();
        let fault = act.fault;
        self.loses(Loss {
            is_of_replica: true,
            ..Loss::new(fault, kept_until, (lost_at, back_at))
        });
        self.installation.lead_to(&redis.socket());
        redis.replica_mut().ensure_up().await?;
        redis.replicate().await
    }

    /// The master becomes a replica of its own replica, which has older data, and then a master again. Its life and its
    /// connections stay.
    async fn resync(&self, act: Act) -> anyhow::Result<()> {
        let time = &self.installation.time;
        let kept_until = time.now() - REPLICA_LATE_MS;
        self.installation.redis.lock().await.detach().await?;
        time.reaches(act.end_ms).await;
        let mut redis = self.installation.redis.lock().await;
        let _: String = redis.replica().ask(&["REPLICAOF", "NO", "ONE"]).await?;
        redis.swap();
        let followed = redis.replicate().await;
        let back_at = time.now();
        redis.swap();
        let _: String = redis.master().ask(&["REPLICAOF", "NO", "ONE"]).await?;
        let (fault, lost_at) = (act.fault, time.now());
        self.loses(Loss {
            sells_on: true,
            is_of_replica: true,
            ..Loss::new(fault, kept_until, (lost_at, back_at))
        });
        followed?;
        redis.replicate().await
    }

    /// The memory of the master goes back, and nothing else: the file and the replica follow it, as the disk of a machine
    /// would. The next comparison notices that (docs/guarantees.md); there is one at the end.
    async fn go_back_in_memory(&self, act: Act) -> anyhow::Result<()> {
        let time = &self.installation.time;
        let kept_until = {
            let redis = self.installation.redis.lock().await;
            let now = time.now();
            let _: String = redis.master().ask(&["SAVE"]).await?;
            now
        };
        time.reaches(act.end_ms).await;
        let mut redis = self.installation.redis.lock().await;
        // Within the second in which it went back, Redis would make the order ids of that second once more. A machine takes
        // longer.
        let _: String = redis.master().ask(&["CLIENT", "PAUSE", "1200", "WRITE"]).await?;
        let back_at = time.now();
        let _: String = redis.master().ask(&["DEBUG", "RELOAD", "NOSAVE"]).await?;
        let (fault, lost_at) = (act.fault, time.now());
        self.loses(Loss { sells_on: true, ..Loss::new(fault, kept_until, (lost_at, back_at)) });
        redis.master().rewrite_file().await?;
        // As a master of its own it gets another replication ID, and all data anew.
        let _: String = redis.replica().ask(&["REPLICAOF", "NO", "ONE"]).await?;
        redis.replicate().await
    }

    async fn fill_disk(&self, act: Act) -> anyhow::Result<()> {
        let ballast = {
            let redis = self.installation.redis.lock().await;
            anyhow::ensure!(redis.master().has_disk(), "no file system of our own is below Redis");
            let ballast = redis.master().data().join("ballast");
            fill(&ballast)?;
            ballast
        };
        self.installation.time.reaches(act.end_ms).await;
        fs::remove_file(&ballast)?;
        // With `appendfsync always` a Redis that can't write ends by itself.
        self.installation.redis.lock().await.master_mut().ensure_up().await
    }

    /// Has each sync of the server end so.
    async fn inject(&self, act: Act, what: &str) -> anyhow::Result<()> {
        let pid = {
            let redis = self.installation.redis.lock().await;
            redis.master().pid().context("Redis is down")?
        };
        let strace = attach(pid, what)?;
        self.installation.time.reaches(act.end_ms).await;
        detach(strace).await?;
        self.installation.redis.lock().await.master_mut().ensure_up().await?;
        self.restart_if_it_refuses_writes(act).await
    }

    /// The operator's part: after one failed sync under `everysec`, Redis 7.0 refuses all writes until it is restarted,
    /// because without a write it tries no further sync.
    async fn restart_if_it_refuses_writes(&self, act: Act) -> anyhow::Result<()> {
        let writes =
            self.installation.redis.lock().await.master().ask::<i64>(&["DEL", "probe"]).await;
        if writes.is_ok() {
            return Ok(());
        }
        self.note(format!("{}: Redis refuses writes behind it, and is restarted", act.fault));
        let now = self.installation.time.now();
        self.restart_on(act, self.unwritten_since(now).unwrap_or(now), |_| Ok(())).await
    }
}

fn attach(pid: i32, what: &str) -> anyhow::Result<Child> {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,fsync", "-e"]);
    strace.arg(format!("inject=fdatasync,fsync:{what}")).args(["-p", &pid.to_string()]);
    strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    strace.spawn().context("strace can't be run")
}

/// SIGTERM lets `strace` detach; its end by SIGKILL might leave the server stopped.
async fn detach(mut strace: Child) -> anyhow::Result<()> {
    if let Some(pid) = strace.id().and_then(|pid| i32::try_from(pid).ok()) {
        let _ = nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    timeout(DETACH_WITHIN, strace.wait()).await.context("strace does not let go")??;
    sleep(Duration::from_millis(10)).await;
    Ok(())
}

/// Writes a file until the disk is full.
fn fill(path: &Path) -> anyhow::Result<()> {
    let mut file = fs::File::create(path)?;
    for size in [1 << 16, 1 << 10, 1] {
        let piece = vec![0; size];
        while file.write_all(&piece).is_ok() {}
    }
    Ok(())
}

fn copy_folder(from: &Path, to: &PathBuf) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        // A file of a rewrite may vanish meanwhile.
        let _ = fs::copy(entry.path(), to.join(entry.file_name()));
    }
    Ok(())
}
