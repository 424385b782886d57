//! Locks that belong to a random owner: SET NX PX, for one key or for a whole batch in one call.

use std::time::Duration;

use redis::RedisResult;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::watchdog;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::kit::redis::Redis;
use crate::kit::script::VariadicScript;

/// Takes locks.
#[derive(Clone)]
pub struct OwnerLocks {
    redis: Redis,
    scripts: std::sync::Arc<Scripts>,
    /// How long a lock outlives its holder.
    lease: Duration,
    /// Owns the watchdogs.
    shutdown: Shutdown,
}

struct Scripts {
    acquire: VariadicScript,
    renew: VariadicScript,
    release: VariadicScript,
}

/// Locks that are held, until [`release`](Self::release) or the end of the guard.
pub struct Guard {
    locks: OwnerLocks,
    keys: Vec<String>,
    owner: String,
    /// Cancelled when the holder can no longer be sure.
    lost: CancellationToken,
    /// Cancelled to end the watchdog.
    released: CancellationToken,
}

impl OwnerLocks {
    /// Locks with this lease; their watchdogs are tasks of `shutdown`.
    pub fn new(redis: Redis, lease: Duration, shutdown: Shutdown) -> Self {
        let scripts = Scripts {
            acquire: VariadicScript::new(include_str!("../../../lua/lock/acquire.lua")),
            renew: VariadicScript::new(include_str!("../../../lua/lock/renew.lua")),
            release: VariadicScript::new(include_str!("../../../lua/lock/release.lua")),
        };
        Self { redis, scripts: scripts.into(), lease, shutdown }
    }

    /// Tries once to take each of the locks; the guard holds those that were free. All keys have to
    /// lie in one slot, and none may be named twice.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer. Locks may have been taken then; they end with their lease.
    pub async fn try_acquire(&self, keys: Vec<String>) -> RedisResult<Guard> {
        let owner = Uuid::new_v4().simple().to_string();
        let sure_until = Instant::now() + self.lease;
        let taken: Vec<bool> = if keys.is_empty() {
            Vec::new()
        } else {
            self.run(&self.scripts.acquire, &keys, &owner, true).await?
        };
        let mut taken = taken.into_iter();
        let keys = keys.into_iter().filter(|_| taken.next().unwrap_or(false)).collect();
        Ok(self.guard(keys, owner, sure_until))
    }

    /// Takes one lock, and waits up to `patience` for it while somebody else holds it.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn acquire(&self, key: String, patience: Duration) -> RedisResult<Option<Guard>> {
        let deadline = Instant::now() + patience;
        loop {
            let guard = self.try_acquire(vec![key.clone()]).await?;
            if guard.holds(&key) {
                return Ok(Some(guard));
            }
            if Instant::now() + limits::LOCK_RETRY_PAUSE > deadline {
                return Ok(None);
            }
            tokio::time::sleep(limits::LOCK_RETRY_PAUSE).await;
        }
    }

    fn guard(&self, keys: Vec<String>, owner: String, sure_until: Instant) -> Guard {
        let guard = Guard {
            locks: self.clone(),
            keys,
            owner,
            lost: CancellationToken::new(),
            released: CancellationToken::new(),
        };
        if !guard.keys.is_empty() {
            let (locks, keys, owner) = (self.clone(), guard.keys.clone(), guard.owner.clone());
            let renew = move || {
                let (locks, keys, owner) = (locks.clone(), keys.clone(), owner.clone());
                async move { locks.renew(&keys, &owner).await }
            };
            let watch = watchdog::watch(
                self.lease,
                sure_until,
                renew,
                guard.lost.clone(),
                guard.released.clone(),
            );
            self.shutdown.spawn(watch);
        }
        guard
    }

    /// True if all locks are still the owner's.
    async fn renew(&self, keys: &[String], owner: &str) -> RedisResult<bool> {
        let renewed: usize = self.run(&self.scripts.renew, keys, owner, true).await?;
        Ok(renewed == keys.len())
    }

    async fn release(&self, keys: &[String], owner: &str) {
        if keys.is_empty() {
            return;
        }
        let released: RedisResult<usize> =
            self.run(&self.scripts.release, keys, owner, false).await;
        if let Err(error) = released {
            tracing::debug!(%error, locks = keys.len(), "locks could not be released and will run out");
        }
    }

    async fn run<T: redis::FromRedisValue>(
        &self,
        script: &VariadicScript,
        keys: &[String],
        owner: &str,
        with_lease: bool,
    ) -> RedisResult<T> {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let lease_ms = with_lease.then(|| self.lease.as_millis().to_string());
        let arguments: Vec<&str> = [owner].into_iter().chain(lease_ms.as_deref()).collect();
        script.run(&*self.redis.link().await?, &keys, arguments).await
    }
}

impl Guard {
    /// Whether this lock was free and is ours.
    pub fn holds(&self, key: &str) -> bool {
        self.keys.iter().any(|held| held == key)
    }

    /// Cancelled when the holder can no longer be sure that it holds its locks.
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Gives the locks back, those that are still ours. Best effort: what can't be released now ends
    /// with its lease.
    pub async fn release(mut self) {
        self.released.cancel();
        let (keys, owner) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.owner));
        self.locks.release(&keys, &owner).await;
    }
}

impl Drop for Guard {
    /// A guard that is dropped (its request was given up, say) releases in a task, so that its locks
    /// don't stand in the way until their lease ends. Nothing is waited for here.
    fn drop(&mut self) {
        self.released.cancel();
        if self.keys.is_empty() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (keys, owner) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.owner));
        let locks = self.locks.clone();
        self.locks.shutdown.spawn(async move { locks.release(&keys, &owner).await });
    }
}
