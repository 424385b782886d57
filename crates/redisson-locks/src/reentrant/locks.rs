//! The client of the locks on a Redis.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;

use super::batch::{Batch, BatchGuard};
use super::client::Client;
use super::layout::Holder;
use super::lock::Lock;
use super::names::Names;
use super::settings::Settings;
use crate::connection::{Connection, Subscribe};
use crate::tasks::Tasks;

/// A client of the locks on a Redis. Clones are the same client.
#[derive(Clone)]
pub struct ReentrantLocks(pub(super) Arc<Client>);

impl ReentrantLocks {
    /// A client that sends its commands over `connection`. The first waiter opens another connection with `subscribe`,
    /// which may be a `redis::Client` or the program's own.
    pub fn new(
        connection: impl Connection,
        subscribe: impl Subscribe,
        settings: Settings,
        tasks: Tasks,
    ) -> Self {
        Self(Arc::new(Client::new(connection, subscribe, settings, tasks)))
    }

    /// A new holder, without locks. Its locks are renewed until they are released.
    pub fn holder(&self) -> Holder {
        self.0.holder(self.0.settings.lease, true)
    }

    /// A new holder with its own lease. **The lease is not renewed**: when it ends, the lock is gone even if the work
    /// isn't done, and the guard's token is cancelled.
    pub fn holder_with_lease(&self, lease: Duration) -> Holder {
        self.0.holder(lease, false)
    }

    /// The lock called `name`. Sends nothing to Redis.
    pub fn lock(&self, name: impl Into<Arc<str>>) -> Lock {
        Lock { client: self.0.clone(), name: name.into(), is_fenced: false }
    }

    /// Like [`lock`](Self::lock), and each entry draws a [fencing token](super::Guard::fencing_token). Redisson's
    /// `RFencedLock` draws from the same counter.
    pub fn fenced_lock(&self, name: impl Into<Arc<str>>) -> Lock {
        Lock { is_fenced: true, ..self.lock(name) }
    }

    /// These locks, to be tried independently in one call. All names have to be in one slot; a name may occur twice. A
    /// call with some thousand names is long enough for other clients of this Redis to notice. Needs Redis 7, or
    /// Valkey. Sends nothing.
    pub fn batch(&self, names: impl Into<Names>) -> Batch {
        Batch::new(self.0.clone(), names.into())
    }

    /// Tries once to take each of these locks, [in memory only](Batch::volatile). The guard holds those that were free.
    /// Short for [`batch`](Self::batch), `volatile` and `try_acquire`.
    ///
    /// # Errors
    ///
    /// As [`Batch::try_acquire`].
    pub async fn try_acquire_batch(&self, names: Vec<String>) -> RedisResult<BatchGuard> {
        self.batch(names).volatile().try_acquire().await
    }
}

impl fmt::Debug for ReentrantLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ReentrantLocks");
        debug.field("settings", &self.0.settings).finish_non_exhaustive()
    }
}
