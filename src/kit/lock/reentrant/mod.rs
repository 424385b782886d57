//! Locks that a holder may enter more than once, laid out as by Redisson: a Java service on the same Redis sees them,
//! waits for them, and is waited for.
//!
//! # Model
//!
//! A lock is a hash of one field: the *holder*, and how often it has the lock. A holder is a task, or whatever else may
//! enter twice; [`ReentrantLocks::holder`] makes one. Every [`Guard`] is one entry, and gives it back when it is
//! released or dropped. Who has to wait tries, subscribes, **tries again now that no message can be missed**, and then
//! sleeps until a message comes or the lease in the way has run out.
//!
//! # Authority
//!
//! Redis decides who holds a lock, in one script for each change. The local, monotonic clock decides one thing: until
//! when a holder can be *sure*, which is one lease after its last good renewal was sent. Then, or when a renewal says that
//! the lock is no longer its own, the guard's token is cancelled. (Redisson's holders aren't told.)
//!
//! # What each failure does
//!
//! * A reply to an unlock that is lost: the request is sent again, and a latch in Redis makes it repeat its first answer.
//! * A reply to an acquire that is lost: an error. If it was executed, the lock is free again when the lease ends, since
//!   nobody renews it; a retry by the same holder enters twice and behaves the same.
//! * The future of an acquire is dropped: each try is a task that ends in any case, and a guard that nobody takes is
//!   dropped, which gives the lock back.
//! * The connection that listens breaks: everybody who waits tries again and subscribes anew.
//! * The holder dies: the lease ends. Waiters wake up then by themselves.
//! * The server's clock is set back: what is left of a lease grows by as much. Where a longest lease is set, who finds more
//!   left cuts the lease to one of its own; a holder that lives renews it.
//!
//! # What is not promised
//!
//! Fairness, and what [`super`] doesn't promise either. A holder that has lost a lock and enters it again while a guard
//! of before is still around may leave it held until its lease ends; to be safe, ask as a new holder.

mod batch;
mod layout;
mod renewal;
mod wake;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{ErrorKind, RedisError, RedisResult};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::kit::redis::Redis;

pub use batch::BatchGuard;
pub use layout::{Holder, Released, channel, latch_key, token_key};
use layout::{Layout, Tried};
use renewal::{Hold, Renewals};
use wake::Wakes;

/// One client of the locks on a Redis. Clones are the same client.
#[derive(Clone)]
pub struct ReentrantLocks(Arc<Client>);

struct Client {
    redis: Redis,
    layout: Arc<Layout>,
    /// Of holders that didn't ask for another one; renewed while they hold something.
    lease: Duration,
    /// The longest lease that anybody asks for on these locks; `None` if that isn't known.
    lease_max: Option<Duration>,
    /// The first half of every holder's name.
    id: String,
    holders: AtomicU64,
    renewals: Renewals,
    wakes: Wakes,
    /// Owns the tasks that try, renew and release.
    shutdown: Shutdown,
}

/// One lock, held or not.
#[derive(Clone)]
pub struct Lock {
    client: Arc<Client>,
    name: Arc<str>,
    is_fenced: bool,
}

/// One entry into a lock.
pub struct Guard {
    client: Arc<Client>,
    hold: Arc<Hold>,
    fencing_token: Option<u64>,
    is_released: bool,
}

/// The answer to one try.
enum Try {
    Taken(Guard),
    /// Held by another holder, for the rest of this lease; `None` for one that never runs out.
    Held(Option<Duration>),
}

impl ReentrantLocks {
    /// A client whose leases are `lease` long and renewed at a third of it, by tasks of `shutdown`.
    pub fn new(redis: Redis, lease: Duration, shutdown: Shutdown) -> Self {
        Self::with_lease_max(redis, lease, None, shutdown)
    }

    /// The same, for locks on which nobody asks for a lease of more than `lease_max`: a longer one is the work of a
    /// clock that was set back, and isn't waited for.
    pub fn with_lease_max(
        redis: Redis,
        lease: Duration,
        lease_max: Option<Duration>,
        shutdown: Shutdown,
    ) -> Self {
        let layout = Arc::new(Layout::new());
        Self(Arc::new(Client {
            renewals: Renewals::new(redis.clone(), layout.clone(), lease, shutdown.clone()),
            wakes: Wakes::new(redis.clone(), shutdown.clone()),
            redis,
            layout,
            lease,
            lease_max,
            id: Uuid::new_v4().to_string(),
            holders: AtomicU64::new(1),
            shutdown,
        }))
    }

    /// A new holder without locks. Locks that the holder takes are renewed until they are released.
    pub fn holder(&self) -> Holder {
        self.0.holder(self.0.lease, true)
    }

    /// A new holder with a lease of its own. **The lease is not renewed**: after that time the lock is gone, whether
    /// the work is done or not, and the guard's token says so.
    pub fn holder_with_lease(&self, lease: Duration) -> Holder {
        self.0.holder(lease, false)
    }

    /// The lock called `name`; asks nobody.
    pub fn lock(&self, name: impl Into<Arc<str>>) -> Lock {
        Lock { client: self.0.clone(), name: name.into(), is_fenced: false }
    }

    /// As [`lock`](Self::lock), and whoever enters draws a [fencing token](Guard::fencing_token).
    pub fn fenced_lock(&self, name: impl Into<Arc<str>>) -> Lock {
        Lock { is_fenced: true, ..self.lock(name) }
    }
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

    /// Takes the lock, and waits up to `patience` for it while somebody else holds it.
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

    /// Takes the lock away from whoever holds it; their token is cancelled at the next renewal. True if somebody held it.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn force_release(&self) -> RedisResult<bool> {
        let client = &self.client;
        client.layout.force_unlock(&*client.redis.link().await?, &self.name).await
    }

    /// In a task, so that a caller who goes away doesn't leave a lock behind that nobody knows of.
    async fn attempt(&self, holder: &Holder) -> RedisResult<Try> {
        let (lock, holder) = (self.clone(), holder.clone());
        let attempt = async move {
            let client = &lock.client;
            let link = client.redis.link().await?;
            // Before it is sent: the lease can only begin later.
            let sure_until = Instant::now() + holder.lease;
            let tried = client.layout.acquire(&link, &lock.name, &holder, lock.is_fenced).await?;
            Ok(match tried {
                Tried::Held(left) => {
                    client.cut_long_leases(left, std::slice::from_ref(&lock.name)).await?;
                    Try::Held(left)
                }
                Tried::Ours(fencing_token) => {
                    let names = vec![lock.name.to_string()];
                    let hold = client.renewals.enter(names, &holder, sure_until);
                    let client = client.clone();
                    Try::Taken(Guard { client, hold, fencing_token, is_released: false })
                }
            })
        };
        self.client.shutdown.spawn(attempt).await.unwrap_or_else(|_| Err(interrupted()))
    }
}

impl Guard {
    /// Cancelled when the holder can no longer be sure that it holds the lock. What must not be done without the lock
    /// is dropped then, or has to show its [fencing token](Self::fencing_token).
    pub fn lost(&self) -> &CancellationToken {
        &self.hold.lost
    }

    /// Until when the holder can be sure, if it isn't told before; renewals move it.
    pub fn sure_until(&self) -> Instant {
        self.hold.sure_until()
    }

    /// Of a [fenced lock](ReentrantLocks::fenced_lock): larger than those of all who entered before. Whatever the lock
    /// protects remembers the largest that it has seen and refuses smaller ones.
    pub fn fencing_token(&self) -> Option<u64> {
        self.fencing_token
    }

    /// Gives the lock back, and says what came of it. Goes on to the end when its future is dropped.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer: the lock ends with its lease, then.
    pub async fn release(mut self) -> RedisResult<Released> {
        self.is_released = true;
        let (client, hold) = (self.client.clone(), self.hold.clone());
        let released = client.shutdown.clone().spawn(async move { client.release(&hold).await });
        released.await.unwrap_or_else(|_| Err(interrupted()))
    }
}

impl Drop for Guard {
    /// A guard that is dropped (its request was given up, say) releases in a task; nothing is waited for here.
    fn drop(&mut self) {
        if self.is_released || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (client, hold) = (self.client.clone(), self.hold.clone());
        self.client.shutdown.spawn(async move {
            if let Err(error) = client.release(&hold).await {
                tracing::debug!(%error, "a lock could not be given back and will run out");
            }
        });
    }
}

impl Client {
    fn holder(&self, lease: Duration, is_renewed: bool) -> Holder {
        let number = self.holders.fetch_add(1, Ordering::Relaxed);
        Holder::new(&self.id, number, lease, is_renewed)
    }

    /// Of these locks, which are held elsewhere: the first one for so long.
    async fn cut_long_leases(
        &self,
        left: Option<Duration>,
        names: &[impl AsRef<str>],
    ) -> RedisResult<()> {
        let Some(lease_max) = self.lease_max.filter(|max| left.is_some_and(|left| left > *max))
        else {
            return Ok(());
        };
        let link = self.redis.link().await?;
        let cut = self.layout.cut_leases(&link, names, lease_max, self.lease).await?;
        if cut > 0 {
            tracing::warn!(
                locks = cut,
                "locks would have been held for longer than anybody asks for: Redis's clock has been set back"
            );
        }
        Ok(())
    }

    async fn release(self: &Arc<Self>, hold: &Arc<Hold>) -> RedisResult<Released> {
        // The same holder may have entered anew since it lost this hold, and that entry is not ours to give back.
        if !self.renewals.leave(hold) {
            return Ok(Released::NotHeld);
        }
        let (name, request) = (&hold.names[0], Uuid::new_v4().simple().to_string());
        // A request that comes when its latch has gone would be taken for a new one.
        let one_try = 2 * self.redis.timeout() + limits::REDIS_RECONNECT_PAUSE;
        let tries_end = Instant::now() + limits::LOCK_LATCH_KEPT.saturating_sub(one_try);
        let mut tries = 1;
        let released = loop {
            match self.unlock(name, &hold.holder, &request).await {
                Err(_) if tries < limits::LOCK_RELEASE_TRIES && Instant::now() < tries_end => {
                    tries += 1;
                }
                released => break released?,
            }
            sleep(limits::REDIS_RECONNECT_PAUSE).await;
        };
        if released != Released::NotHeld {
            self.forget_latch(layout::latch_key(name, &request));
        }
        Ok(released)
    }

    async fn unlock(&self, name: &str, holder: &Holder, request: &str) -> RedisResult<Released> {
        self.layout.unlock(&*self.redis.link().await?, name, holder, request).await
    }

    /// It would run out by itself; nobody waits for this.
    fn forget_latch(self: &Arc<Self>, latch: String) {
        let client = self.clone();
        self.shutdown.spawn(async move {
            let _: RedisResult<()> = client.redis.query(redis::cmd("DEL").arg(latch)).await;
        });
    }
}

/// A task that was ended, by a runtime that is being shut down.
fn interrupted() -> RedisError {
    RedisError::from((ErrorKind::Io, "interrupted"))
}
