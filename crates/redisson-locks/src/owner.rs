//! The plain lock: a key that holds its owner's random value. `SET NX PX` takes the lock. Two scripts renew and release
//! it; both compare the value first.
//!
//! The plain lock isn't re-entrant, sends no message when it is released, and is unknown to Redisson's RLock. `redlock`
//! uses one on each server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::connection::{Connection, Server, interrupted};
use super::script::Script;
use super::tasks::Tasks;
use super::watchdog::{self, Watched};

/// Times of plain locks. Clients of a lock need not use the same.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Time for which a lock outlives a holder that died. It is renewed at a third of this. Default: 30 s.
    pub lease: Duration,
    /// Pause between two tries to take a lock that is held. Default: 20 ms.
    pub retry_pause: Duration,
}

/// Client of plain locks. Clones are the same client.
#[derive(Clone)]
pub struct OwnerLocks {
    server: Server,
    scripts: Arc<Scripts>,
    settings: Settings,
    /// Runs the tries, watchdogs and releases.
    tasks: Tasks,
}

pub(super) struct Scripts {
    renew: Script,
    release: Script,
}

/// A lock that is held until [`release`](Self::release), or until the guard is dropped.
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard {
    locks: OwnerLocks,
    key: String,
    owner: String,
    watched: Watched,
    is_released: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { lease: Duration::from_secs(30), retry_pause: Duration::from_millis(20) }
    }
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            renew: Script::new(include_str!("../lua/owner/renew.lua")),
            release: Script::new(include_str!("../lua/owner/release.lua")),
        }
    }

    /// True if the owner has taken the key.
    async fn acquire(
        &self,
        server: &Server,
        key: &str,
        owner: &str,
        lease: Duration,
    ) -> RedisResult<bool> {
        let reply: Option<String> = server.query(&set(key, owner, lease)).await?;
        Ok(reply.is_some())
    }

    /// True if the key was still the owner's.
    pub(super) async fn renew(
        &self,
        server: &Server,
        key: &str,
        owner: &str,
        lease: Duration,
    ) -> RedisResult<bool> {
        let lease_ms = lease.as_millis().to_string();
        self.renew.run(server, &[key], &[owner, &lease_ms]).await
    }

    /// True if the key was the owner's; it is now deleted.
    pub(super) async fn release(
        &self,
        server: &Server,
        key: &str,
        owner: &str,
    ) -> RedisResult<bool> {
        self.release.run(server, &[key], owner).await
    }
}

/// The command that takes a lock. The reply is nil if the lock is held.
pub(super) fn set(key: &str, owner: &str, lease: Duration) -> redis::Cmd {
    let mut set = redis::cmd("SET");
    set.arg(key).arg(owner).arg("NX").arg("PX").arg(lease.as_millis().to_string());
    set
}

impl OwnerLocks {
    /// Locks on the server behind `connection`.
    pub fn new(connection: impl Connection, settings: Settings, tasks: Tasks) -> Self {
        let server = Server::new(connection);
        Self { server, scripts: Scripts::new().into(), settings, tasks }
    }

    /// Tries once to take the lock. `None` if another owner holds it.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer. The lock may have been taken; it then ends with its lease.
    pub async fn try_acquire(&self, key: &str) -> RedisResult<Option<Guard>> {
        let locks = self.clone();
        let key = key.to_owned();
        // In a task, so that a caller that goes away leaves no lock without a guard behind.
        let attempt = async move {
            let owner = Uuid::new_v4().simple().to_string();
            let lease = locks.settings.lease;
            let sure_until = Instant::now() + lease;
            let taken = locks.scripts.acquire(&locks.server, &key, &owner, lease).await?;
            Ok(taken.then(|| locks.guard(key, owner, sure_until)))
        };
        self.tasks.spawn(attempt).await.unwrap_or_else(|_| Err(interrupted()))
    }

    /// Takes the lock. While another owner holds it, retries every [`retry_pause`](Settings::retry_pause), for up to
    /// `patience`. `None` if the lock was held at every try.
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
            if Instant::now() + self.settings.retry_pause > deadline {
                return Ok(None);
            }
            sleep(self.settings.retry_pause).await;
        }
    }

    fn guard(&self, key: String, owner: String, sure_until: Instant) -> Guard {
        let watched = Watched::new(sure_until);
        let lease = self.settings.lease;
        let renew = {
            let locks = self.clone();
            let key = key.clone();
            let owner = owner.clone();
            move || {
                let locks = locks.clone();
                let key = key.clone();
                let owner = owner.clone();
                async move { locks.scripts.renew(&locks.server, &key, &owner, lease).await }
            }
        };
        self.tasks.spawn(watchdog::watch(lease, renew, watched.clone()));
        Guard { locks: self.clone(), key, owner, watched, is_released: false }
    }
}

impl Guard {
    /// Cancelled when the holder can no longer be sure that it holds the lock.
    pub fn lost(&self) -> &CancellationToken {
        &self.watched.lost
    }

    /// Releases the lock. True if this guard still held it.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer. The lock then ends with its lease.
    pub async fn release(mut self) -> RedisResult<bool> {
        self.watched.released.cancel();
        self.is_released = true;
        self.locks.scripts.release(&self.locks.server, &self.key, &self.owner).await
    }
}

impl fmt::Debug for OwnerLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerLocks").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Drop for Guard {
    /// A guard that is dropped without a release (because its request was cancelled, for example) releases in a task,
    /// so that nobody waits for the lease to end. `drop` itself doesn't wait.
    fn drop(&mut self) {
        self.watched.released.cancel();
        if self.is_released || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let key = std::mem::take(&mut self.key);
        let owner = std::mem::take(&mut self.owner);
        let locks = self.locks.clone();
        self.locks.tasks.spawn(async move {
            if let Err(error) = locks.scripts.release(&locks.server, &key, &owner).await {
                tracing::debug!(%error, "a lock could not be released and will run out");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use private_servers::testing::{Bounded, bound_this_test};
    use redis::Value;

    use super::*;
    use crate::connection::tests::{Played, away};
    use crate::heard::Heard;
    use crate::script::tests::{Row, Stage};

    const LEASE: Duration = Duration::from_secs(6);

    fn locks(server: &Played) -> OwnerLocks {
        let settings = Settings { lease: LEASE, retry_pause: Duration::from_millis(30) };
        OwnerLocks::new(server.clone(), settings, Tasks::default())
    }

    /// A server on which the lock is free, and stays the owner's.
    fn free() -> Played {
        Played::new(|_| Ok(Value::Okay))
    }

    /// First words of the commands since the last call.
    fn verbs(server: &Played) -> Vec<String> {
        let verb = |command: String| command.split(' ').take(3).collect::<Vec<_>>().join(" ");
        server.asked().into_iter().map(verb).collect()
    }

    /// Lets all tasks that are ready run.
    async fn settle() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn release_and_renew_leave_another_owner_s_lock_alone() {
        bound_this_test();
        let mut stage = Stage::new().await;
        let scripts = Scripts::new();
        stage.holds(&scripts.release, &RELEASED).await;
        stage.holds(&scripts.renew, &RENEWED).await;
    }

    const RELEASED: [Row; 3] = [
        ("a=me/5", "a | me", "1", "logged"),
        ("a=other/5", "a | me", "0", "a=other/5"),
        ("", "a | me", "0", ""),
    ];

    const RENEWED: [Row; 3] = [
        ("a=me/5", "a | me 9000000", "1", "a=me/9 logged"),
        ("a=other/5", "a | me 9000000", "0", "a=other/5"),
        ("", "a | me 9000000", "0", ""),
    ];

    #[tokio::test]
    async fn a_key_is_taken_once_renewed_and_released_by_its_owner_alone() {
        bound_this_test();
        let stage = Stage::new().await;
        let server = stage.server();
        let scripts = Scripts::new();
        let [short, long] = [5_000, 9_000].map(Duration::from_secs);
        assert!(scripts.acquire(server, "a", "me", short).bounded().await.unwrap());
        assert!(!scripts.acquire(server, "a", "other", long).bounded().await.unwrap());
        assert_eq!(stage.there().await, ["a=me/5"]);
        assert!(!scripts.renew(server, "a", "other", long).bounded().await.unwrap());
        assert!(!scripts.release(server, "a", "other").bounded().await.unwrap());
        assert_eq!(stage.there().await, ["a=me/5"]);
        assert!(scripts.renew(server, "a", "me", long).bounded().await.unwrap());
        assert_eq!(stage.there().await, ["a=me/9"]);
        assert!(scripts.release(server, "a", "me").bounded().await.unwrap());
        assert!(stage.there().await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_tries_after_each_pause_while_its_patience_lasts() {
        bound_this_test();
        let held = Played::new(|_| Ok(Value::Nil));
        let began = Instant::now();
        let guard = locks(&held).acquire("a", Duration::from_millis(100)).bounded().await.unwrap();
        assert!(guard.is_none());
        assert_eq!(began.elapsed(), Duration::from_millis(90));
        assert_eq!(held.asked().len(), 4);

        // One more pause would just fit.
        let guard = locks(&held).acquire("a", Duration::from_millis(60)).bounded().await.unwrap();
        assert!(guard.is_none());
        assert_eq!(held.asked().len(), 3);
        assert!(locks(&Played::new(|_| away())).acquire("a", LEASE).bounded().await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_is_renewed_until_it_is_released() {
        bound_this_test();
        let server = free();
        let guard = locks(&server)
            .acquire("a", Duration::ZERO)
            .bounded()
            .await
            .unwrap()
            .expect("it is free");
        assert_eq!(guard.watched.sure_until(), Instant::now() + LEASE);
        assert_eq!(verbs(&server), [format!("SET a {}", guard.owner)]);
        sleep(LEASE - Duration::from_secs(1)).await;
        assert_eq!(verbs(&server), ["EVALSHA 1 a", "EVALSHA 1 a"], "a third, and two thirds");
        assert!(!guard.lost().is_cancelled());
        let lost = guard.lost().clone();
        assert!(guard.release().bounded().await.unwrap());
        settle().await;
        assert_eq!(verbs(&server), ["EVALSHA 1 a"], "released once");
        sleep(3 * LEASE).await;
        assert!(server.asked().is_empty(), "it is renewed no more");
        assert!(!lost.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn release_says_whether_the_lock_was_still_the_owner_s() {
        bound_this_test();
        let lost = Played::new(|command| {
            Ok(if command.starts_with("SET") { Value::Okay } else { Value::Int(0) })
        });
        let guard = locks(&lost).try_acquire("a").bounded().await.unwrap().expect("it is free");
        assert!(!guard.release().bounded().await.unwrap());
        let guard = locks(&lost).try_acquire("a").bounded().await.unwrap().expect("it is free");
        sleep(LEASE / 2).await;
        assert!(guard.lost().is_cancelled(), "a renewal has said so");
    }

    #[tokio::test(start_paused = true)]
    async fn a_guard_that_is_dropped_releases_once_and_is_renewed_no_more() {
        bound_this_test();
        let server = free();
        let guard = locks(&server).try_acquire("a").bounded().await.unwrap().expect("it is free");
        let owner = guard.owner.clone();
        server.asked();
        drop(guard);
        settle().await;
        assert_eq!(server.asked(), [format!("EVALSHA 1 a {owner}")]);
        sleep(3 * LEASE).await;
        assert!(server.asked().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn release_ends_the_renewals_before_its_answer_is_there() {
        bound_this_test();
        // Renewals would come after 2 s and 4 s.
        let server = free().slow("EVALSHA", Duration::from_secs(5));
        let guard = locks(&server).try_acquire("a").bounded().await.unwrap().expect("it is free");
        let release = format!("EVALSHA 1 a {}", guard.owner);
        server.asked();
        assert!(guard.release().bounded().await.unwrap());
        assert_eq!(server.asked(), [release]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_guard_that_is_dropped_and_cannot_be_released_is_told_in_the_log() {
        bound_this_test();
        for (is_away, told) in [(true, 1), (false, 0)] {
            let heard = Heard::from_now_on();
            let server = Played::new(move |command| {
                if is_away && command.starts_with("EVALSHA") { away() } else { Ok(Value::Okay) }
            });
            drop(locks(&server).try_acquire("a").bounded().await.unwrap().expect("it is free"));
            settle().await;
            let lines = heard.lines();
            assert_eq!(lines.len(), told, "{lines:?}");
            let expected = "DEBUG a lock could not be released and will run out error=";
            assert!(lines.iter().all(|line| line.starts_with(expected)), "{lines:?}");
        }
    }

    #[test]
    fn a_guard_may_be_dropped_outside_of_a_runtime() {
        let server = free();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let guard = runtime.block_on(locks(&server).try_acquire("a")).unwrap();
        server.asked();
        drop(guard.expect("it is free"));
        assert!(server.asked().is_empty(), "the lock runs out");
    }
}
