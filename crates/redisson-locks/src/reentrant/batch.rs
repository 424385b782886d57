//! Many locks in one call, each for itself: for a worker that must not wait in the middle of its batch.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::RedisResult;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::names::Names;
use super::renewal::Hold;
use crate::connection::interrupted;

/// Locks that are tried together, each for itself. Nothing is sent before [`try_acquire`](Self::try_acquire).
#[derive(Clone)]
pub struct Batch {
    client: Arc<Client>,
    names: Names,
    is_volatile: bool,
}

/// The locks of a batch that were free. The loss of one cancels the token of all.
#[must_use = "the locks are released when their guard is dropped"]
pub struct BatchGuard {
    client: Arc<Client>,
    /// All names of the batch.
    names: Arc<Names>,
    /// Positions of the names that other holders had, in ascending order.
    contended: Vec<usize>,
    /// Positions of all names, in the order of the names; made when a name is looked for.
    sorted: OnceLock<Vec<usize>>,
    /// `None` if no lock was free.
    hold: Option<Arc<Hold>>,
    /// Token of a batch without locks: never cancelled.
    never: CancellationToken,
    is_released: bool,
}

impl Batch {
    pub(super) fn new(client: Arc<Client>, names: Names) -> Self {
        Self { client, names, is_volatile: false }
    }

    /// Keeps the locks in the memory of this Redis alone: taking, renewing and releasing them go neither into the
    /// append-only file nor to replicas, and wait for no sync of the disk.
    ///
    /// **After a restart of Redis or a fail-over the locks are gone**, and any client may take them at once; this holder is
    /// told by its next renewal. So this is for locks that spare work, where a constraint or a fencing token decides. Of a
    /// holder that dies without a release, the end of each lease is a `DEL` in the file and at replicas all the same.
    #[must_use]
    pub fn volatile(mut self) -> Self {
        self.is_volatile = true;
        self
    }

    /// Tries each lock once, for a holder of the batch's own.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer. Locks may have been taken then; they end with their lease.
    pub async fn try_acquire(self) -> RedisResult<BatchGuard> {
        let tasks = self.client.tasks.clone();
        // In a task, so that a caller that goes away leaves no locks behind that have no guard.
        tasks.spawn(self.take()).await.unwrap_or_else(|_| Err(interrupted()))
    }

    async fn take(self) -> RedisResult<BatchGuard> {
        let Self { client, names, is_volatile } = self;
        let names = Arc::new(names);
        let mut contended = Vec::new();
        let mut hold = None;
        if !names.is_empty() {
            let lease = client.settings.lease;
            let holder = client.holder(lease, true).keep_volatile(is_volatile);
            let sure_until = Instant::now() + lease;
            contended = client.layout.acquire_batch(&client.server, &names, &holder).await?;
            let mut held = names.clone();
            if !contended.is_empty() {
                held = Arc::new(without(&names, &contended));
                let of_others: Vec<&str> = contended.iter().map(|at| &names[*at]).collect();
                // The script doesn't say for how long they are held.
                client.cut_long_leases(Some(Duration::MAX), &of_others).await?;
            }
            hold = (!held.is_empty()).then(|| client.renewals.enter(held, &holder, sure_until));
        }
        let sorted = OnceLock::new();
        let never = CancellationToken::new();
        Ok(BatchGuard { client, names, contended, sorted, hold, never, is_released: false })
    }
}

/// The other names.
fn without(names: &Names, positions: &[usize]) -> Names {
    let others = (0..names.len()).filter(|at| positions.binary_search(at).is_err());
    others.map(|at| &names[at]).collect()
}

impl BatchGuard {
    /// Whether this lock was free, and is the batch's now. [`holds_at`](Self::holds_at) does without a search.
    pub fn holds(&self, name: &str) -> bool {
        let sorted = self.sorted.get_or_init(|| {
            let mut positions: Vec<usize> = (0..self.names.len()).collect();
            positions.sort_unstable_by_key(|at| &self.names[*at]);
            positions
        });
        let found = sorted.binary_search_by(|at| self.names[*at].cmp(name));
        found.is_ok_and(|found| self.holds_at(sorted[found]))
    }

    /// Whether the lock at this position of the batch's names, counted from 0, was free, and is the batch's now.
    pub fn holds_at(&self, position: usize) -> bool {
        position < self.names.len() && self.contended.binary_search(&position).is_err()
    }

    /// Token that is cancelled when the holder can no longer be sure that it holds all its locks.
    pub fn lost(&self) -> &CancellationToken {
        self.hold.as_ref().map_or(&self.never, |hold| &hold.lost)
    }

    /// Releases the locks that are still the batch's. Best effort: a lock that can't be released ends with its lease.
    pub async fn release(mut self) {
        self.is_released = true;
        if let Some(hold) = self.hold.take() {
            self.client.release_batch(&hold).await;
        }
    }
}

impl Client {
    /// Also when the holder isn't sure any more: the holder is this batch's own, so no later entry can be meant.
    async fn release_batch(&self, hold: &Arc<Hold>) {
        self.renewals.leave(hold);
        let released = self.layout.unlock_batch(&self.server, &hold.names, &hold.holder).await;
        if let Err(error) = released {
            tracing::debug!(%error, locks = hold.names.len(), "locks could not be released and will run out");
        }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Batch");
        debug.field("names", &self.names).field("is_volatile", &self.is_volatile);
        debug.finish_non_exhaustive()
    }
}

impl fmt::Debug for BatchGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("BatchGuard");
        debug.field("names", &self.names).field("contended", &self.contended);
        debug.finish_non_exhaustive()
    }
}

impl Drop for BatchGuard {
    /// As for a single lock: in a task, and nothing is waited for here.
    fn drop(&mut self) {
        if self.is_released || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        if let Some(hold) = self.hold.take() {
            let client = self.client.clone();
            self.client.tasks.spawn(async move { client.release_batch(&hold).await });
        }
    }
}
