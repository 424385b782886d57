//! One stop token and one task tracker for the whole process: every task has an owner. Stopping means cancelling the
//! token and waiting for the tasks.
//!
//! A process that is about to stop may announce that ([`Shutdown::announce`]) and go on for a while, so that its
//! balancer can look elsewhere.

use std::future::Future;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Hands out the stop token and keeps track of the tasks. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// Cancelled first, as soon as a stop is known to come.
    announced: CancellationToken,
    /// Cancelled once, when the service has to stop.
    stop: CancellationToken,
    /// Every task of the service; none is spawned outside of it.
    tasks: TaskTracker,
}

impl Shutdown {
    /// The token that tells a task to finish its work and return.
    pub fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }

    /// The tracker, for a library that starts tasks of its own.
    pub fn tracker(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Announces that the service will stop soon. Nothing ends yet.
    pub fn announce(&self) {
        self.announced.cancel();
    }

    /// Whether the service is stopping or will soon: then it takes no new work.
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

/// The requests to stop: SIGINT (Ctrl-C), SIGTERM and SIGHUP (the terminal is gone; not under `nohup`). One listener for the life of the process: a signal that arrives
/// while no task waits is kept for the next wait.
pub struct StopRequests {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Option<Signal>,
}

impl StopRequests {
    /// Listens from now on; the signals no longer end the process by themselves.
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

    /// The name of the next signal.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            Some(_) = async { self.hang_up.as_mut()?.recv().await } => "SIGHUP",
        }
    }
}

/// Whether who started this process has it ignore SIGHUP, as `nohup` does. Asked of Linux; elsewhere it is a request.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 != 0)
}
