//! One client of the locks on a Redis.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;

use super::batch::BatchGuard;
use super::client::Client;
use super::layout::Holder;
use super::lock::Lock;
use super::settings::Settings;
use crate::connection::{Connection, Subscribe, interrupted};
use crate::tasks::Tasks;

/// One client of the locks on a Redis. Clones are the same client.
#[derive(Clone)]
pub struct ReentrantLocks(pub(super) Arc<Client>);

impl ReentrantLocks {
    /// A client whose commands take `connection`. The first waiter opens another connection by `subscribe`: a
    /// `redis::Client`, or the program's own.
    pub fn new(
        connection: impl Connection,
        subscribe: impl Subscribe,
        settings: Settings,
        tasks: Tasks,
    ) -> Self {
        Self(Arc::new(Client::new(connection, subscribe, settings, tasks)))
    }

    /// A new holder without locks. Locks that the holder takes are renewed until they are released.
    pub fn holder(&self) -> Holder {
        self.0.holder(self.0.settings.lease, true)
    }

    /// A new holder with a lease of its own. **The lease is not renewed**: after that time the lock is gone, whether
    /// the work is done or not, and the guard's token says so.
    pub fn holder_with_lease(&self, lease: Duration) -> Holder {
        self.0.holder(lease, false)
    }

    /// The lock called `name`. Sends nothing.
    pub fn lock(&self, name: impl Into<Arc<str>>) -> Lock {
        Lock { client: self.0.clone(), name: name.into(), is_fenced: false }
    }

    /// As [`lock`](Self::lock), and each entry draws a [fencing token](super::Guard::fencing_token). Redisson's
    /// `RFencedLock` draws from the same counter.
    pub fn fenced_lock(&self, name: impl Into<Arc<str>>) -> Lock {
        Lock { is_fenced: true, ..self.lock(name) }
    }

    /// Tries once to take each of these locks, for a holder of the batch's own; the guard holds the free ones. All names
    /// have to lie in one slot, and none may be named twice. Needs Redis 7, or Valkey.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer. Locks may have been taken then; they end with their lease.
    pub async fn try_acquire_batch(&self, names: Vec<String>) -> RedisResult<BatchGuard> {
        let client = self.0.clone();
        let attempt = async move { BatchGuard::take(client, names).await };
        self.0.tasks.spawn(attempt).await.unwrap_or_else(|_| Err(interrupted()))
    }
}

impl fmt::Debug for ReentrantLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ReentrantLocks");
        debug.field("settings", &self.0.settings).finish_non_exhaustive()
    }
}
