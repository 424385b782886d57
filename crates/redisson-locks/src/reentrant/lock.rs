//! One lock: trying, waiting, and the guard of an entry.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::layout::{self, Holder, Released, Tried};
use super::names::Names;
use super::renewal::Hold;
use crate::connection::interrupted;

/// One lock, held or not.
#[derive(Clone)]
pub struct Lock {
    pub(super) client: Arc<Client>,
    pub(super) name: Arc<str>,
    pub(super) is_fenced: bool,
}

/// One entry into a lock.
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard {
    client: Arc<Client>,
    hold: Arc<Hold>,
    fencing_token: Option<u64>,
    is_released: bool,
}

/// The answer to one try.
enum Try {
    Taken(Guard),
    /// Held by another holder, for the rest of this lease; `None` for a lease that never ends.
    Held(Option<Duration>),
}

impl Lock {
    /// Tries once.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer. The lock may have been taken then; it ends with its lease.
    pub async fn try_acquire(&self, holder: &Holder) -> RedisResult<Option<Guard>> {
        match self.attempt(holder).await? {
            Try::Taken(guard) => Ok(Some(guard)),
            Try::Held(_) => Ok(None),
        }
    }

    /// Takes the lock, and waits up to `patience` while another holder has it. `None` if the patience ended first.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), and when Redis doesn't allow to subscribe.
    pub async fn acquire(&self, holder: &Holder, patience: Duration) -> RedisResult<Option<Guard>> {
        let deadline = Instant::now() + patience;
        if let Try::Taken(guard) = self.attempt(holder).await? {
            return Ok(Some(guard));
        }
        loop {
            let listening = self.client.wakes.listen(layout::channel(&self.name));
            let Ok(listener) = timeout_at(deadline, listening).await else { return Ok(None) };
            let listener = listener?;
            let mut is_live = true;
            while is_live {
                let left = match self.attempt(holder).await {
                    Ok(Try::Taken(guard)) => return Ok(Some(guard)),
                    Ok(Try::Held(left)) => left,
                    Err(error) => {
                        listener.pass_on();
                        return Err(error);
                    }
                };
                if Instant::now() >= deadline {
                    return Ok(None);
                }
                // Redis rounds down to milliseconds.
                let over = left.map(|left| Instant::now() + left + Duration::from_millis(1));
                tokio::select! {
                    woken = listener.woken() => is_live = woken,
                    () = sleep_until(over.map_or(deadline, |over| over.min(deadline))) => {}
                }
            }
        }
    }

    /// Takes the lock away from its holder, whose token is cancelled at the next renewal. True if the lock was held.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn force_release(&self) -> RedisResult<bool> {
        self.client.layout.force_unlock(&self.client.server, &self.name).await
    }

    /// In a task, so that a caller that goes away leaves no lock behind that has no guard.
    async fn attempt(&self, holder: &Holder) -> RedisResult<Try> {
        let lock = self.clone();
        let holder = holder.clone();
        let attempt = async move {
            let client = &lock.client;
            // Before the request is sent: the lease can only begin later.
            let sure_until = Instant::now() + holder.lease;
            let tried =
                client.layout.acquire(&client.server, &lock.name, &holder, lock.is_fenced).await?;
            Ok(match tried {
                Tried::Held(left) => {
                    client.cut_long_leases(left, std::slice::from_ref(&lock.name)).await?;
                    Try::Held(left)
                }
                Tried::Ours(fencing_token) => {
                    let names = Arc::new(Names::from(vec![&lock.name]));
                    let hold = client.renewals.enter(names, &holder, sure_until);
                    let client = client.clone();
                    Try::Taken(Guard { client, hold, fencing_token, is_released: false })
                }
            })
        };
        self.client.tasks.spawn(attempt).await.unwrap_or_else(|_| Err(interrupted()))
    }
}

impl Guard {
    /// Token that is cancelled when the holder can no longer be sure that it holds the lock. Work that needs the lock is
    /// dropped then, or has to show its [fencing token](Self::fencing_token).
    pub fn lost(&self) -> &CancellationToken {
        &self.hold.lost
    }

    /// End of the time in which the holder can be sure, unless it is told before; renewals move it.
    pub fn sure_until(&self) -> Instant {
        self.hold.sure_until()
    }

    /// Number of this entry into a [fenced lock](super::ReentrantLocks::fenced_lock), larger than all numbers before. The
    /// resource that the lock protects remembers the largest one that it has seen, and refuses smaller ones. `None` for a
    /// lock that isn't fenced.
    pub fn fencing_token(&self) -> Option<u64> {
        self.fencing_token
    }

    /// Releases the entry, and says what the lock is then. Goes on to the end when its future is dropped.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer: the lock ends with its lease, then.
    pub async fn release(mut self) -> RedisResult<Released> {
        self.is_released = true;
        let client = self.client.clone();
        let hold = self.hold.clone();
        let released = self.client.tasks.spawn(async move { client.release(&hold).await });
        released.await.unwrap_or_else(|_| Err(interrupted()))
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Lock");
        debug.field("name", &self.name).field("is_fenced", &self.is_fenced).finish_non_exhaustive()
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Guard");
        debug.field("name", &&self.hold.names[0]).field("holder", &self.hold.holder.as_str());
        debug.field("fencing_token", &self.fencing_token).finish_non_exhaustive()
    }
}

impl Drop for Guard {
    /// A guard that is dropped (its request was cancelled, say) releases in a task; nothing is waited for here.
    fn drop(&mut self) {
        if self.is_released || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let client = self.client.clone();
        let hold = self.hold.clone();
        self.client.tasks.spawn(async move {
            if let Err(error) = client.release(&hold).await {
                tracing::debug!(%error, "a lock could not be released and will run out");
            }
        });
    }
}
