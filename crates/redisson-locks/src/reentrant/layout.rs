//! The keys of a lock in Redis, and the scripts that change them, in the layout of Redisson 4, a Java client.
//!
//! For a lock called `N`, with `p(x)` = `x:N` if `N` contains a `{`, else `x:{N}`:
//!
//! | object | key or channel | type |
//! |---|---|---|
//! | lock | `N` | HASH: holder -> number of its entries; time to live = lease |
//! | wake-up | `p(redisson_lock__channel)` | channel; the message is `0` |
//! | latch | `p(redisson_unlock_latch):<32 hex digits>` | STRING: the answer to one request to unlock |
//! | fencing token | `p(redisson_lock_token)` | STRING: the last token; never expires |
//!
//! A holder is `<uuid of the client>:<number>`. No client parses it: in Java the number is a thread's, here it is a
//! task's. KEYS and ARGV of the first five scripts are Redisson's, so that Redisson's calls can be replayed against our
//! scripts.

use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;

use super::names::Names;
use crate::connection::Server;
use crate::script::Script;

/// Message that wakes one waiter of each client. Redisson parses it, so only numbers may be published there.
const FREE: &str = "0";
/// Argument of scripts for in-memory locks.
const VOLATILE: &str = "1";
/// Prefix of the channels' names.
const CHANNEL: &str = "redisson_lock__channel";
/// Command that publishes a message. In clusters, which this crate doesn't support, Redisson uses `SPUBLISH`.
const PUBLISH: &str = "PUBLISH";

/// Holder of locks: a task, or another unit of work that may enter twice. All leases of a holder have the same length,
/// so that another entry can only make a lock last longer.
#[derive(Clone, Debug)]
pub struct Holder {
    pub(super) id: Arc<str>,
    pub(super) lease: Duration,
    /// Whether its leases are renewed until they are released. Leases from `ReentrantLocks::holder_with_lease` aren't.
    pub(super) is_renewed: bool,
    /// Whether its locks are kept only in the memory of one Redis, as a batch may ask for.
    pub(super) is_volatile: bool,
}

/// The Lua scripts.
pub(super) struct Layout {
    pub(super) acquire: Script,
    pub(super) acquire_fenced: Script,
    pub(super) unlock: Script,
    pub(super) force_unlock: Script,
    pub(super) renew: Script,
    pub(super) acquire_batch: Script,
    pub(super) unlock_batch: Script,
    pub(super) cut_leases: Script,
}

/// The answer to one try to take a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// The holder has the lock, with the fencing token that was drawn, if one was asked for.
    Ours(Option<u64>),
    /// Another holder has the lock, for the rest of this lease; `None` for a lease that never ends.
    Held(Option<Duration>),
}

/// State of a lock after a guard was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The lock is free, and its waiters were told.
    Freed,
    /// The same holder still has the lock, because it had entered more than once.
    StillHeld,
    /// The holder no longer had the lock: its lease had ended, or the lock had been taken away.
    NotHeld,
}

impl Holder {
    pub(super) fn new(client: &str, number: u64, lease: Duration, is_renewed: bool) -> Self {
        Self { id: format!("{client}:{number}").into(), lease, is_renewed, is_volatile: false }
    }

    pub(super) fn keep_volatile(self, is_volatile: bool) -> Self {
        Self { is_volatile, ..self }
    }

    /// The script argument that says whether the locks are in memory only.
    fn volatile(&self) -> &'static str {
        if self.is_volatile { VOLATILE } else { "0" }
    }

    /// The name of the holder in Redis.
    pub fn as_str(&self) -> &str {
        &self.id
    }
}

/// Channel on which waiters for the lock `name` listen.
pub fn channel(name: &str) -> String {
    beside(CHANNEL, name)
}

/// Key of the last fencing token of the lock `name`.
pub fn token_key(name: &str) -> String {
    beside("redisson_lock_token", name)
}

/// Key of the latch: the answer to the request `request` to unlock `name`.
pub fn latch_key(name: &str, request: &str) -> String {
    format!("{}:{request}", beside("redisson_unlock_latch", name))
}

/// A name in the lock's slot of a cluster.
fn beside(prefix: &str, name: &str) -> String {
    if name.contains('{') { format!("{prefix}:{name}") } else { format!("{prefix}:{{{name}}}") }
}

impl Layout {
    pub(super) fn new() -> Self {
        Self {
            acquire: Script::new(include_str!("../../lua/reentrant/acquire.lua")),
            acquire_fenced: Script::new(include_str!("../../lua/reentrant/acquire_fenced.lua")),
            unlock: Script::new(include_str!("../../lua/reentrant/unlock.lua")),
            force_unlock: Script::new(include_str!("../../lua/reentrant/force_unlock.lua")),
            renew: Script::new(include_str!("../../lua/reentrant/renew.lua")),
            acquire_batch: Script::new(include_str!("../../lua/reentrant/acquire_batch.lua")),
            unlock_batch: Script::new(include_str!("../../lua/reentrant/unlock_batch.lua")),
            cut_leases: Script::new(include_str!("../../lua/reentrant/cut_leases.lua")),
        }
    }

    pub(super) async fn acquire(
        &self,
        server: &Server,
        name: &str,
        holder: &Holder,
        is_fenced: bool,
    ) -> RedisResult<Tried> {
        let lease_ms = milliseconds(holder.lease);
        let arguments = [lease_ms.as_str(), holder.as_str()];
        if is_fenced {
            let keys = [name, &token_key(name)];
            let (left_ms, token): (i64, i64) =
                self.acquire_fenced.run(server, &keys, &arguments).await?;
            // A token is never negative. Redisson returns -1 if none was drawn.
            return Ok(match u64::try_from(token) {
                Ok(token) => Tried::Ours(Some(token)),
                Err(_) => Tried::held(left_ms),
            });
        }
        let left_ms: Option<i64> = self.acquire.run(server, &[name], &arguments).await?;
        Ok(left_ms.map_or(Tried::Ours(None), Tried::held))
    }

    /// May be repeated with the same `request` while the latch lasts; it then gives the first answer again.
    pub(super) async fn unlock(
        &self,
        server: &Server,
        name: &str,
        holder: &Holder,
        request: &str,
        latch: Duration,
    ) -> RedisResult<Released> {
        let keys = [name, &channel(name), &latch_key(name, request)];
        let lease_ms = milliseconds(holder.lease);
        let latch_ms = milliseconds(latch);
        let arguments = [FREE, &lease_ms, holder.as_str(), PUBLISH, &latch_ms];
        let answer: Option<i64> = self.unlock.run(server, &keys, &arguments).await?;
        Ok(match answer {
            None => Released::NotHeld,
            Some(0) => Released::StillHeld,
            Some(_) => Released::Freed,
        })
    }

    /// True if the lock was held.
    pub(super) async fn force_unlock(&self, server: &Server, name: &str) -> RedisResult<bool> {
        self.force_unlock.run(server, &[name, &channel(name)], &[FREE, PUBLISH]).await
    }

    /// For each lock, whether it is still its holder's. Either all of these locks are in memory only, or none is.
    pub(super) async fn renew(
        &self,
        server: &Server,
        lease: Duration,
        locks: &[(&str, &Holder)],
    ) -> RedisResult<Vec<bool>> {
        let keys: Vec<&str> = locks.iter().map(|(name, _)| *name).collect();
        let lease_ms = milliseconds(lease);
        let mut arguments = vec![lease_ms.as_str()];
        arguments.extend(locks.iter().map(|(_, holder)| holder.as_str()));
        let is_volatile = locks.first().is_some_and(|(_, holder)| holder.is_volatile);
        arguments.extend(is_volatile.then_some(VOLATILE));
        self.renew.run(server, &keys, arguments).await
    }

    /// Tries to take each lock. Returns the positions of those that other holders have, ascending.
    pub(super) async fn acquire_batch(
        &self,
        server: &Server,
        names: &Names,
        holder: &Holder,
    ) -> RedisResult<Vec<usize>> {
        let keys: Vec<&str> = names.iter().collect();
        let lease_ms = milliseconds(holder.lease);
        let arguments = [lease_ms.as_str(), holder.as_str(), holder.volatile()];
        let mut contended: Vec<usize> = self.acquire_batch.run(server, &keys, &arguments).await?;
        // Lua counts from 1.
        contended.iter_mut().for_each(|position| *position -= 1);
        Ok(contended)
    }

    /// Shortens each lease that is longer than `lease_max` to `lease`. Returns the number of leases shortened.
    pub(super) async fn cut_leases(
        &self,
        server: &Server,
        names: &[impl AsRef<str>],
        lease_max: Duration,
        lease: Duration,
    ) -> RedisResult<usize> {
        let keys: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        self.cut_leases.run(server, &keys, &[milliseconds(lease_max), milliseconds(lease)]).await
    }

    /// Releases the holder's locks. Returns how many of the locks were the holder's.
    pub(super) async fn unlock_batch(
        &self,
        server: &Server,
        names: &Names,
        holder: &Holder,
    ) -> RedisResult<usize> {
        let keys: Vec<&str> = names.iter().collect();
        let channels = format!("{CHANNEL}:*");
        let arguments = [FREE, holder.as_str(), &channels, holder.volatile()];
        self.unlock_batch.run(server, &keys, &arguments).await
    }
}

impl Tried {
    fn held(left_ms: i64) -> Self {
        Self::Held(u64::try_from(left_ms).ok().map(Duration::from_millis))
    }
}

fn milliseconds(duration: Duration) -> String {
    duration.as_millis().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_channels_are_redisson_s() {
        assert_eq!(channel("printer"), "redisson_lock__channel:{printer}");
        assert_eq!(channel("fs:{3}:a"), "redisson_lock__channel:fs:{3}:a");
        assert_eq!(token_key("printer"), "redisson_lock_token:{printer}");
        let request = "0123456789abcdef0123456789abcdef";
        assert_eq!(
            latch_key("printer", request),
            "redisson_unlock_latch:{printer}:0123456789abcdef0123456789abcdef"
        );
        let client = "7a8b5a1e-9a0a-4c4e-8d69-0c7f1d1f0001";
        let holder = Holder::new(client, 47, Duration::from_secs(30), true);
        assert_eq!(holder.as_str(), "7a8b5a1e-9a0a-4c4e-8d69-0c7f1d1f0001:47");
    }

    #[test]
    fn a_lease_that_never_ends_has_no_time_left() {
        assert_eq!(Tried::held(-1), Tried::Held(None));
        assert_eq!(Tried::held(250), Tried::Held(Some(Duration::from_millis(250))));
    }
}
