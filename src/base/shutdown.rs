//! One stop token and one task tracker for the whole process, so every task has an owner. To stop, the process cancels
//! the token and waits for the tasks.
//!
//! A process may announce its stop ([`Shutdown::announce`]) and go on for a while, so that its balancer can send
//! requests elsewhere.

use std::future::Future;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Hands out the stop token, and tracks the tasks. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// Cancelled as soon as a stop is known to come.
    announced: CancellationToken,
    stop: CancellationToken,
    /// Every task of the service. None is spawned outside it.
    tasks: TaskTracker,
}

impl Shutdown {
    /// The token that tells a task to finish its work and return.
    pub fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }

    /// For a library that starts its own tasks.
    pub fn tracker(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Announces that the service will stop soon. Nothing ends yet.
    pub fn announce(&self) {
        self.announced.cancel();
    }

    /// Whether the service is stopping, or will stop soon and takes no new work.
    pub fn is_announced(&self) -> bool {
        self.announced.is_cancelled()
    }

    /// Starts a task that the shutdown waits for.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.tasks.spawn(task)
    }

    /// Stops all tasks. False if some were still running after `patience`.
    pub async fn stop(&self, patience: Duration) -> bool {
        self.announce();
        self.stop.cancel();
        self.tasks.close();
        tokio::time::timeout(patience, self.tasks.wait()).await.is_ok()
    }
}

/// Signals that request a stop: SIGINT (Ctrl-C), SIGTERM, and SIGHUP (the terminal is gone; not under `nohup`). One
/// listener serves the whole process. A signal that arrives while no task waits is kept for the next wait.
pub struct StopRequests {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Option<Signal>,
}

impl StopRequests {
    /// Listens from now on. The signals no longer end the process by themselves.
    ///
    /// # Errors
    ///
    /// When the handlers can't be installed.
    pub fn listen() -> std::io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        let hang_up = (!ignores_hang_up()).then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Self { interrupt, terminate, hang_up })
    }

    /// Waits for the next signal, and returns its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            Some(_) = async { self.hang_up.as_mut()?.recv().await } => "SIGHUP",
        }
    }
}

/// Whether the process was started with SIGHUP ignored, as by `nohup`. Reads Linux's `/proc`; elsewhere SIGHUP is a
/// request to stop.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 != 0)
}
