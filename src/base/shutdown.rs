//! One stop token and one task tracker for the whole process: every task has an owner, and stopping
//! means cancelling the one and waiting for the other.
//!
//! A process that is about to stop may say so first ([`Shutdown::announce`]) and go on for a while, so
//! that whoever sends it work can look elsewhere.

use std::future::Future;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Hands out the stop token and keeps track of the tasks. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// Cancelled first, when it is known that the service will stop.
    announced: CancellationToken,
    /// Cancelled once, when the service has to stop.
    stop: CancellationToken,
    /// Every task of the service; nothing is spawned outside of it.
    tasks: TaskTracker,
}

impl Shutdown {
    /// The token that tells a task to finish what it has begun and return.
    pub fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }

    /// The tracker, for a library that starts tasks of its own.
    pub fn tracker(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Says that the service will stop soon. Nothing ends yet.
    pub fn announce(&self) {
        self.announced.cancel();
    }

    /// Whether the service is stopping or will soon: it wants no new work.
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

/// The requests to stop: SIGINT (Ctrl-C) and SIGTERM. One listener for the life of the process: a
/// signal that arrives while nobody waits is kept for whoever waits next.
pub struct StopRequests {
    interrupt: Signal,
    terminate: Signal,
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
        Ok(Self { interrupt, terminate })
    }

    /// The name of the next signal.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
