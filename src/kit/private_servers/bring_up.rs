//! Takes over a server of a former run, or starts one; the same steps for Redis and Postgres.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

use super::error::{PrivateServersError, io_error};
use super::postgres_home::ServerUser;
use super::process::{Running, log_tail, new_log, proven_pid, try_alive_lock};
use super::{Sync, environment, postgres_server, redis_server};

/// How long one question to a server may take.
const ASK_WITHIN: Duration = Duration::from_secs(2);
/// How long a server that we started may stay silent: its sockets come up before it loads its data.
const SILENT_MAX: Duration = Duration::from_secs(60);
/// How long a leftover may: it has had its time to start.
const LEFTOVER_SILENT_MAX: Duration = Duration::from_secs(5);
/// How long a server may say that it is loading or recovering.
const LOADING_MAX: Duration = Duration::from_secs(600);
const LOADING_SAID_EVERY: Duration = Duration::from_secs(10);
/// How long a leftover may hold its lock without a pid file that proves which process it is: one that was just being
/// started, the children of a killed server on their way out, an initdb without its parent.
const UNIDENTIFIED_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// Which of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Redis,
    Postgres,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Redis => "Redis",
            Self::Postgres => "Postgres",
        }
    }

    /// As files of the folder are called.
    pub(super) fn short_name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Postgres => "postgres",
        }
    }

    /// What the program may be called.
    pub(super) fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Redis => &["redis-server", "valkey-server"],
            Self::Postgres => &["postgres"],
        }
    }

    /// The option that names the data folder. It is always the first, which proves a process (see `process`).
    pub(super) fn data_flag(self) -> &'static str {
        match self {
            Self::Redis => "--dir",
            Self::Postgres => "-D",
        }
    }

    /// Redis writes its append-only file and ends; Postgres cuts its connections, makes a checkpoint and ends.
    pub(super) fn stop_signal(self) -> Signal {
        match self {
            Self::Redis => Signal::SIGTERM,
            Self::Postgres => Signal::SIGINT,
        }
    }
}

/// All that there is to know of a server before it runs.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    pub(super) sync: Sync,
    pub(super) program: PathBuf,
    /// Without the data folder, which comes first.
    pub(super) arguments: Vec<OsString>,
    /// None: as ourselves.
    pub(super) user: Option<ServerUser>,
    /// The data folder, canonical.
    pub(super) data: PathBuf,
    pub(super) pid_file: PathBuf,
    pub(super) socket: PathBuf,
    /// What a killed server leaves behind and must not be there when it starts again.
    pub(super) stale: Vec<PathBuf>,
    /// The file whose lock lives as long as the server.
    pub(super) alive: PathBuf,
    pub(super) log: PathBuf,
    pub(super) url: String,
    /// What has to exist before the first start: the program that makes it. None for Redis.
    pub(super) initdb: Option<PathBuf>,
}

/// What a server says when asked whether it is there.
#[derive(Debug)]
pub(super) enum Answer {
    Ready,
    /// It loads or recovers, in its own words.
    Loading(String),
    /// No answer, or none that is understood.
    Silent(String),
    /// An answer, but not of the server that was asked for.
    Unfit(String),
}

/// How waiting for a server ended.
enum Waited {
    Ready,
    Ended(String),
    Unfit(String),
}

/// Takes over the leftover of a former run, or starts the server. It answers when this returns.
pub(super) async fn bring_up(plan: Plan) -> Result<Running, PrivateServersError> {
    let lock = loop {
        if let Some(lock) = try_alive_lock(&plan.alive)? {
            break lock;
        }
        if let Some(running) = take_over(&plan).await? {
            return Ok(running);
        }
    };
    start_anew(plan, lock).await
}

/// `None`: the leftover is gone, by itself or because it was stopped.
async fn take_over(plan: &Plan) -> Result<Option<Running>, PrivateServersError> {
    let Some(pid) = identify(plan).await? else {
        return Ok(None);
    };
    let server = plan.kind.name();
    let mut running = Running::left_over(plan.clone(), pid);
    match wait_until_ready(&mut running, LEFTOVER_SILENT_MAX).await? {
        Waited::Ready => {
            tracing::info!(
                server,
                pid,
                "a private server of a former run still answers and is taken over"
            );
            Ok(Some(running))
        }
        Waited::Ended(_) => Ok(None),
        Waited::Unfit(reason) => {
            tracing::warn!(
                server,
                pid,
                reason,
                "a private server of a former run is stopped and started anew"
            );
            match running.stop().await {
                // That it is gone is all that matters here.
                Ok(()) | Err(PrivateServersError::Killed { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        }
    }
}

/// The process that holds the lock, or `None` as soon as nobody does.
async fn identify(plan: &Plan) -> Result<Option<u32>, PrivateServersError> {
    let deadline = Instant::now() + UNIDENTIFIED_MAX;
    while try_alive_lock(&plan.alive)?.is_none() {
        if let Some(pid) = proven_pid(plan) {
            return Ok(Some(pid));
        }
        if Instant::now() > deadline {
            return Err(PrivateServersError::Unidentified {
                server: plan.kind.name(),
                alive: plan.alive.clone(),
            });
        }
        sleep(POLL).await;
    }
    Ok(None)
}

/// Starts the server; `lock` proves that none of this folder lives and goes on into the new one.
async fn start_anew(plan: Plan, lock: File) -> Result<Running, PrivateServersError> {
    for file in &plan.stale {
        match fs::remove_file(file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(io_error("remove", file)(error));
            }
            _ => {}
        }
    }
    if let Some(initdb) = &plan.initdb {
        postgres_server::initialise(&plan, initdb, &lock).await?;
    }
    let mut running = spawn(plan, lock)?;
    match wait_until_ready(&mut running, SILENT_MAX).await? {
        Waited::Ready => Ok(running),
        Waited::Ended(status) => {
            Err(exited(running.plan().kind.name(), status, &running.plan().log))
        }
        Waited::Unfit(reason) => {
            let plan = running.plan();
            let error = PrivateServersError::NotReady {
                server: plan.kind.name(),
                reason,
                log: plan.log.clone(),
                last_lines: format!("; its last lines:\n{}", log_tail(&plan.log)),
            };
            // The reason why it had to be stopped says more than how stopping went.
            let _ = running.stop().await;
            Err(error)
        }
    }
}

fn spawn(plan: Plan, lock: File) -> Result<Running, PrivateServersError> {
    let child = command(&plan.program, plan.user, &plan.log, lock)?
        .arg(plan.kind.data_flag())
        .arg(&plan.data)
        .args(&plan.arguments)
        .spawn()
        .map_err(io_error("run", &plan.program))?;
    // A child that nobody has waited for has an id.
    let pid = child.id().unwrap_or_default();
    tracing::info!(server = plan.kind.name(), pid, log = %plan.log.display(), "a private server is starting");
    Ok(Running::started(plan, pid, child))
}

/// A program of the server's: in a process group of its own, writing to a new log, with the lock as its (empty) input.
pub(super) fn command(
    program: &Path,
    user: Option<ServerUser>,
    log: &Path,
    lock: File,
) -> Result<Command, PrivateServersError> {
    let log_out = new_log(log)?;
    let log_err = log_out.try_clone().map_err(io_error("open", log))?;
    let mut command = Command::new(program);
    command
        // The service's own folder may be out of the server user's reach.
        .current_dir("/")
        .env_clear()
        .envs(environment::inherited())
        .env("LC_ALL", "C")
        .stdin(Stdio::from(lock))
        .stdout(log_out)
        .stderr(log_err)
        .process_group(0);
    if let Some(user) = user {
        command.uid(user.uid).gid(user.gid);
    }
    Ok(command)
}

/// The error of a program that ended instead of doing its work.
pub(super) fn exited(server: &'static str, status: String, log: &Path) -> PrivateServersError {
    PrivateServersError::Exited { server, status, log: log.to_owned(), last_lines: log_tail(log) }
}

async fn wait_until_ready(
    running: &mut Running,
    silent_max: Duration,
) -> Result<Waited, PrivateServersError> {
    let began = Instant::now();
    let (mut heard, mut said) = (began, began);
    loop {
        let now = Instant::now();
        match ask(running.plan(), running.pid()).await {
            Answer::Ready => return Ok(Waited::Ready),
            Answer::Unfit(reason) => return Ok(Waited::Unfit(reason)),
            Answer::Silent(reason) if now > heard + silent_max => return Ok(Waited::Unfit(reason)),
            Answer::Loading(reason) if now > began + LOADING_MAX => {
                return Ok(Waited::Unfit(reason));
            }
            Answer::Silent(_) => {}
            Answer::Loading(reason) => {
                heard = now;
                if now > said + LOADING_SAID_EVERY {
                    said = now;
                    tracing::info!(
                        server = running.plan().kind.name(),
                        reason,
                        "a private server is still loading"
                    );
                }
            }
        }
        if let Some(status) = running.has_ended()? {
            return Ok(Waited::Ended(status));
        }
        sleep(POLL).await;
    }
}

async fn ask(plan: &Plan, pid: u32) -> Answer {
    let answer = async {
        match plan.kind {
            Kind::Redis => redis_server::ask(plan, pid).await,
            Kind::Postgres => postgres_server::ask(plan).await,
        }
    };
    timeout(ASK_WITHIN, answer)
        .await
        .unwrap_or_else(|_| Answer::Silent(format!("no answer within {} s", ASK_WITHIN.as_secs())))
}

/// Whether both servers answer at these addresses.
pub(super) async fn answer(redis_url: &str, database_url: &str) -> bool {
    let both =
        async { redis_server::ping(redis_url).await && postgres_server::ping(database_url).await };
    timeout(ASK_WITHIN, both).await.unwrap_or(false)
}

/// Whether two paths lead to the same folder.
pub(super) fn is_same_folder(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}
