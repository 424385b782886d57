//! The plain lock: a key that holds the random value of its owner. SET NX PX takes it, and two scripts that compare the
//! value first renew it and give it back.
//!
//! What it can't: be entered twice, wake anybody up, be seen by other clients' locks. It is what [`super::redlock`] takes
//! on each of its servers.

use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, RedisResult};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::watchdog::{self, Watched};
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::kit::redis::Redis;
use crate::kit::script::Script;

/// Takes locks.
#[derive(Clone)]
pub struct OwnerLocks {
    redis: Redis,
    scripts: Arc<Scripts>,
    /// How long a lock outlives its holder.
    lease: Duration,
    /// Owns the watchdogs.
    shutdown: Shutdown,
}

/// What is done to a key on one server.
pub(super) struct Scripts {
    renew: Script<1>,
    release: Script<1>,
}

/// A lock that is held, until [`release`](Self::release) or the end of the guard.
pub struct Guard {
    locks: OwnerLocks,
    key: String,
    owner: String,
    watched: Watched,
    is_released: bool,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            renew: Script::new(include_str!("../../../lua/lock/owner/renew.lua")),
            release: Script::new(include_str!("../../../lua/lock/owner/release.lua")),
        }
    }

    /// True if the key is the owner's now.
    pub(super) async fn acquire(
        &self,
        redis: &Redis,
        key: &str,
        owner: &str,
        lease: Duration,
    ) -> RedisResult<bool> {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(owner).arg("NX").arg("PX").arg(lease.as_millis().to_string());
        let reply: Option<String> = redis.query(&set).await?;
        Ok(reply.is_some())
    }

    /// True if the key is still the owner's.
    pub(super) async fn renew(
        &self,
        redis: &Redis,
        key: &str,
        owner: &str,
        lease: Duration,
    ) -> RedisResult<bool> {
        let lease_ms = lease.as_millis().to_string();
        self.renew.run(&*redis.link().await?, [key], &[owner, &lease_ms]).await
    }

    /// True if the key was the owner's, and is gone now.
    pub(super) async fn release(&self, redis: &Redis, key: &str, owner: &str) -> RedisResult<bool> {
        self.release.run(&*redis.link().await?, [key], owner).await
    }
}

impl OwnerLocks {
    /// Locks with this lease; their watchdogs are tasks of `shutdown`.
    pub fn new(redis: Redis, lease: Duration, shutdown: Shutdown) -> Self {
        Self { redis, scripts: Scripts::new().into(), lease, shutdown }
    }

    /// Tries once.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer. The lock may have been taken then; it ends with its lease.
    pub async fn try_acquire(&self, key: &str) -> RedisResult<Option<Guard>> {
        let (locks, key) = (self.clone(), key.to_owned());
        // A task, so that a caller who goes away doesn't leave a lock behind that nobody knows of.
        let attempt = async move {
            let owner = Uuid::new_v4().simple().to_string();
            let sure_until = Instant::now() + locks.lease;
            let taken = locks.scripts.acquire(&locks.redis, &key, &owner, locks.lease).await?;
            Ok(taken.then(|| locks.guard(key, owner, sure_until)))
        };
        let interrupted = |_| Err(RedisError::from((ErrorKind::Io, "interrupted")));
        self.shutdown.spawn(attempt).await.unwrap_or_else(interrupted)
    }

    /// Takes the lock, and asks for it every [`limits::LOCK_RETRY_PAUSE`], up to `patience`, while somebody else holds it.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn acquire(&self, key: &str, patience: Duration) -> RedisResult<Option<Guard>> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(guard) = self.try_acquire(key).await? {
                return Ok(Some(guard));
            }
            if Instant::now() + limits::LOCK_RETRY_PAUSE > deadline {
                return Ok(None);
            }
            sleep(limits::LOCK_RETRY_PAUSE).await;
        }
    }

    fn guard(&self, key: String, owner: String, sure_until: Instant) -> Guard {
        let watched = Watched::new(sure_until);
        let renew = {
            let (locks, key, owner) = (self.clone(), key.clone(), owner.clone());
            move || {
                let (locks, key, owner) = (locks.clone(), key.clone(), owner.clone());
                async move { locks.scripts.renew(&locks.redis, &key, &owner, locks.lease).await }
            }
        };
        self.shutdown.spawn(watchdog::watch(self.lease, renew, watched.clone()));
        Guard { locks: self.clone(), key, owner, watched, is_released: false }
    }
}

impl Guard {
    /// Cancelled when the holder can no longer be sure that it holds the lock.
    pub fn lost(&self) -> &CancellationToken {
        &self.watched.lost
    }

    /// Gives the lock back; true if it was still ours.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer: the lock ends with its lease, then.
    pub async fn release(mut self) -> RedisResult<bool> {
        self.watched.released.cancel();
        self.is_released = true;
        self.locks.scripts.release(&self.locks.redis, &self.key, &self.owner).await
    }
}

impl Drop for Guard {
    /// A guard that is dropped (its request was given up, say) releases in a task, so that its lock doesn't stand
    /// in the way until the lease ends. Nothing is waited for here.
    fn drop(&mut self) {
        self.watched.released.cancel();
        if self.is_released || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (key, owner) = (std::mem::take(&mut self.key), std::mem::take(&mut self.owner));
        let locks = self.locks.clone();
        self.locks.shutdown.spawn(async move {
            if let Err(error) = locks.scripts.release(&locks.redis, &key, &owner).await {
                tracing::debug!(%error, "a lock could not be given back and will run out");
            }
        });
    }
}
