//! Many locks in one call, each for itself: what a worker needs that must not wait in the middle of a batch.

use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::renewal::Hold;
use super::{Client, ReentrantLocks, interrupted};

/// Those locks of a batch that were free. They stand and fall together: when one is lost, the token is cancelled.
pub struct BatchGuard {
    client: Arc<Client>,
    /// `None` if none was free.
    hold: Option<Arc<Hold>>,
    /// Of a batch without locks: never cancelled.
    never: CancellationToken,
    is_released: bool,
}

impl ReentrantLocks {
    /// Tries once to take each of the locks, as a holder of the batch's own; the guard holds those that were free. All
    /// have to lie in one slot, and none may be named twice.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer. Locks may have been taken then; they end with their lease.
    pub async fn try_acquire_batch(&self, names: Vec<String>) -> RedisResult<BatchGuard> {
        let client = self.0.clone();
        let attempt = async move { BatchGuard::take(client, names).await };
        self.0.shutdown.spawn(attempt).await.unwrap_or_else(|_| Err(interrupted()))
    }
}

impl BatchGuard {
    async fn take(client: Arc<Client>, mut names: Vec<String>) -> RedisResult<Self> {
        names.sort_unstable();
        let mut hold = None;
        if !names.is_empty() {
            let (link, holder) = (client.redis.link().await?, client.holder(client.lease, true));
            let sure_until = Instant::now() + client.lease;
            let taken = client.layout.acquire_batch(&link, &names, &holder).await?;
            let mut taken = taken.into_iter();
            let (names, held): (Vec<String>, Vec<String>) =
                names.into_iter().partition(|_| taken.next().unwrap_or(false));
            if !held.is_empty() {
                // How long they are held isn't known here.
                client.cut_long_leases(Some(Duration::MAX), &held).await?;
            }
            hold = (!names.is_empty()).then(|| client.renewals.enter(names, &holder, sure_until));
        }
        Ok(Self { client, hold, never: CancellationToken::new(), is_released: false })
    }

    /// Whether this lock was free and is ours.
    pub fn holds(&self, name: &str) -> bool {
        let find =
            |hold: &Arc<Hold>| hold.names.binary_search_by(|held| held.as_str().cmp(name)).is_ok();
        self.hold.as_ref().is_some_and(find)
    }

    /// Cancelled when the holder can no longer be sure that it holds its locks.
    pub fn lost(&self) -> &CancellationToken {
        self.hold.as_ref().map_or(&self.never, |hold| &hold.lost)
    }

    /// Gives back those that are still ours. Best effort: what can't be released now ends with its lease.
    pub async fn release(mut self) {
        self.is_released = true;
        if let Some(hold) = self.hold.take() {
            self.client.release_batch(&hold).await;
        }
    }
}

impl Client {
    /// Also when the holder isn't sure any more: it is this batch's own, so nothing that came later can be meant.
    async fn release_batch(&self, hold: &Arc<Hold>) {
        self.renewals.leave(hold);
        let released = async {
            let link = self.redis.link().await?;
            self.layout.unlock_batch(&link, &hold.names, &hold.holder).await
        };
        if let Err(error) = released.await {
            tracing::debug!(%error, locks = hold.names.len(), "locks could not be released and will run out");
        }
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
            self.client.shutdown.spawn(async move { client.release_batch(&hold).await });
        }
    }
}
