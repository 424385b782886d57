//! Owner of the tasks: one stop token, one tracker.

use std::future::Future;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Owner of the tasks that try, renew, wait and release. Clones share the token and the tracker.
///
/// A lock that is held when the token is cancelled is still renewed until its guard is released or dropped, so that the
/// work under the lock can finish. Every other task ends by itself.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    stop: CancellationToken,
    tracker: TaskTracker,
}

impl Tasks {
    /// Tasks that end after `stop` is cancelled, with their own tracker.
    pub fn new(stop: CancellationToken) -> Self {
        Self::tracked(stop, TaskTracker::new())
    }

    /// Tasks that end after `stop` is cancelled, and that the program's `tracker` waits for.
    pub fn tracked(stop: CancellationToken, tracker: TaskTracker) -> Self {
        Self { stop, tracker }
    }

    /// Waits until all tasks have ended: the token is cancelled, and no guard is left. Closes the tracker.
    pub async fn ended(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    pub(crate) fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }

    pub(crate) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.tracker.spawn(task)
    }
}
