//! Takes over a server of a former run, or starts one; the same steps for Redis and Postgres.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::launch::{command, exited, log_tail};
use super::plan::{Answer, Kind, Plan};
use super::process::{Running, proven_pid, try_alive_lock};
use super::{postgres, redis};
use crate::error::{PrivateServersError, io_error};

/// Time for one answer of a server.
const ASK_WITHIN: Duration = Duration::from_secs(2);
/// Time for which a started server may stay silent: its sockets come up before it loads its data.
const SILENT_MAX: Duration = Duration::from_secs(60);
/// Time for which a leftover may stay silent: it has had its time to start.
const LEFTOVER_SILENT_MAX: Duration = Duration::from_secs(5);
/// Time for which a server may load or recover.
const LOADING_MAX: Duration = Duration::from_secs(600);
/// Time between two log lines about a server that loads.
const LOADING_SAID_EVERY: Duration = Duration::from_secs(10);
/// Time for which a leftover may hold its lock without a pid file that identifies it: a server that was just being
/// started, the children of a killed server on their way out, an initdb without its parent.
const UNIDENTIFIED_MAX: Duration = Duration::from_secs(30);
/// Time between two questions.
const POLL: Duration = Duration::from_millis(20);

/// The end of waiting for a server.
enum Waited {
    Ready,
    Ended(String),
    Unfit(String),
}

/// Takes over the leftover of a former run, or starts the server. The server answers when this returns.
pub(crate) async fn bring_up(plan: Plan) -> Result<Running, PrivateServersError> {
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

/// Takes over a leftover. `None`: it is gone, by itself or because it was stopped.
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
                // Gone in either case.
                Ok(()) | Err(PrivateServersError::Killed { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        }
    }
}

/// The process that holds the lock, or `None` as soon as no process does.
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

/// Starts the server. `lock` proves that no server of this folder lives, and the new one inherits it.
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
        postgres::initialise(&plan, initdb, &lock).await?;
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
            // The reason of the stop says more than its outcome.
            let _ = running.stop().await;
            Err(error)
        }
    }
}

fn spawn(plan: Plan, lock: File) -> Result<Running, PrivateServersError> {
    let child = command(&plan, &plan.program, &plan.log, lock)?
        .arg(plan.kind.data_flag())
        .arg(&plan.data)
        .args(&plan.arguments)
        .spawn()
        .map_err(io_error("run", &plan.program))?;
    // A child has an id until its end has been waited for.
    let pid = child.id().unwrap_or_default();
    tracing::info!(server = plan.kind.name(), pid, log = %plan.log.display(), "a private server is starting");
    Ok(Running::started(plan, pid, child))
}

async fn wait_until_ready(
    running: &mut Running,
    silent_max: Duration,
) -> Result<Waited, PrivateServersError> {
    let began = Instant::now();
    let mut heard = began;
    let mut said = began;
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
            Kind::Redis => redis::ask(plan, pid).await,
            Kind::Postgres => postgres::ask(plan).await,
        }
    };
    timeout(ASK_WITHIN, answer)
        .await
        .unwrap_or_else(|_| Answer::Silent(format!("no answer within {} s", ASK_WITHIN.as_secs())))
}

/// Whether both servers answer at these addresses.
pub(crate) async fn answer(redis_url: &str, database_url: &str) -> bool {
    let both = async { redis::ping(redis_url).await && postgres::ping(database_url).await };
    timeout(ASK_WITHIN, both).await.unwrap_or(false)
}
