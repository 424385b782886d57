//! Many locks in one call, each for itself: for a worker that must not wait in the middle of its batch.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::renewal::Hold;

/// The locks of a batch that were free. The loss of one cancels the token of all.
#[must_use = "the locks are released when their guard is dropped"]
pub struct BatchGuard {
    client: Arc<Client>,
    /// `None` if no lock was free.
    hold: Option<Arc<Hold>>,
    /// Token of a batch without locks: never cancelled.
    never: CancellationToken,
    is_released: bool,
}

impl BatchGuard {
    pub(super) async fn take(client: Arc<Client>, mut names: Vec<String>) -> RedisResult<Self> {
        names.sort_unstable();
        let mut hold = None;
        if !names.is_empty() {
            let lease = client.settings.lease;
            let holder = client.holder(lease, true);
            let sure_until = Instant::now() + lease;
            let taken = client.layout.acquire_batch(&client.server, &names, &holder).await?;
            let mut taken = taken.into_iter();
            let (names, held): (Vec<String>, Vec<String>) =
                names.into_iter().partition(|_| taken.next().unwrap_or(false));
            if !held.is_empty() {
                // The script doesn't say for how long they are held.
                client.cut_long_leases(Some(Duration::MAX), &held).await?;
            }
            hold = (!names.is_empty()).then(|| client.renewals.enter(names, &holder, sure_until));
        }
        Ok(Self { client, hold, never: CancellationToken::new(), is_released: false })
    }

    /// Whether this lock was free, and is the batch's now.
    pub fn holds(&self, name: &str) -> bool {
        let find =
            |hold: &Arc<Hold>| hold.names.binary_search_by(|held| held.as_str().cmp(name)).is_ok();
        self.hold.as_ref().is_some_and(find)
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

impl fmt::Debug for BatchGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.hold.as_ref().map_or(&[][..], |hold| &hold.names);
        f.debug_struct("BatchGuard").field("names", &names).finish_non_exhaustive()
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
