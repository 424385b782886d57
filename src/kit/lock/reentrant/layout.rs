//! How a lock lies in Redis, and the scripts that change it: the layout of Redisson 4, a Java client.
//!
//! For a lock called `N`, with `p(x)` = `x:N` if `N` contains a `{`, else `x:{N}`:
//!
//! | what | key or channel | type |
//! |---|---|---|
//! | lock | `N` | HASH: holder -> how often it has the lock; its time to live is the lease |
//! | wake-up | `p(redisson_lock__channel)` | channel; the message is `0` |
//! | latch | `p(redisson_unlock_latch):<32 hex digits>` | STRING: the answer to one request to unlock |
//! | fencing token | `p(redisson_lock_token)` | STRING: the last token; never expires |
//!
//! A holder is `<uuid of the client>:<number>`, and nobody takes it apart: Java counts threads there, we count tasks.
//! KEYS and ARGV of the first four scripts are Redisson's, so that what it sent can be replayed against ours.

use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;

use crate::base::limits;
use crate::kit::redis::Link;
use crate::kit::script::{Script, VariadicScript};

/// Wakes up one waiter of each client. Redisson parses it: nothing but numbers may be published there.
const FREE: &str = "0";
/// What the names of channels begin with.
const CHANNEL: &str = "redisson_lock__channel";
/// `SPUBLISH` would be for clusters, which the client here doesn't speak to.
const PUBLISH: &str = "PUBLISH";

/// Holder of locks: one task, or another unit of work that may enter twice. All leases of a holder are of one length, so
/// that entering once more can only make a lock last longer.
#[derive(Clone, Debug)]
pub struct Holder {
    pub(super) id: Arc<str>,
    pub(super) lease: Duration,
    /// Whether its leases are renewed until it lets go; a lease that was asked for expressly isn't.
    pub(super) is_renewed: bool,
}

/// The scripts.
pub(super) struct Layout {
    acquire: Script<1>,
    acquire_fenced: Script<2>,
    unlock: Script<3>,
    force_unlock: Script<2>,
    renew: VariadicScript,
    acquire_batch: VariadicScript,
    unlock_batch: VariadicScript,
    cut_leases: VariadicScript,
}

/// The answer to one try at a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// It is the holder's, with the fencing token that was drawn, if one was asked for.
    Ours(Option<u64>),
    /// Held by another holder, for the rest of this lease; `None` for one that never runs out.
    Held(Option<Duration>),
}

/// What came of giving a lock back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It is free, and who waits for it has been told.
    Freed,
    /// The same holder still has it: it had entered more than once.
    StillHeld,
    /// It wasn't the holder's any more: it had run out, or somebody had taken it away.
    NotHeld,
}

impl Holder {
    pub(super) fn new(client: &str, number: u64, lease: Duration, is_renewed: bool) -> Self {
        Self { id: format!("{client}:{number}").into(), lease, is_renewed }
    }

    /// As it stands in Redis.
    pub fn as_str(&self) -> &str {
        &self.id
    }
}

/// Where those listen who wait for the lock `name`.
pub fn channel(name: &str) -> String {
    beside(CHANNEL, name)
}

/// Where the last fencing token of the lock `name` is.
pub fn token_key(name: &str) -> String {
    beside("redisson_lock_token", name)
}

/// Where the answer to the request `request` to unlock `name` is kept.
pub fn latch_key(name: &str, request: &str) -> String {
    format!("{}:{request}", beside("redisson_unlock_latch", name))
}

/// In the same slot of a cluster as the lock.
fn beside(prefix: &str, name: &str) -> String {
    if name.contains('{') { format!("{prefix}:{name}") } else { format!("{prefix}:{{{name}}}") }
}

impl Layout {
    pub(super) fn new() -> Self {
        Self {
            acquire: Script::new(include_str!("../../../../lua/lock/reentrant/acquire.lua")),
            acquire_fenced: Script::new(include_str!(
                "../../../../lua/lock/reentrant/acquire_fenced.lua"
            )),
            unlock: Script::new(include_str!("../../../../lua/lock/reentrant/unlock.lua")),
            force_unlock: Script::new(include_str!(
                "../../../../lua/lock/reentrant/force_unlock.lua"
            )),
            renew: VariadicScript::new(include_str!("../../../../lua/lock/reentrant/renew.lua")),
            acquire_batch: VariadicScript::new(include_str!(
                "../../../../lua/lock/reentrant/acquire_batch.lua"
            )),
            unlock_batch: VariadicScript::new(include_str!(
                "../../../../lua/lock/reentrant/unlock_batch.lua"
            )),
            cut_leases: VariadicScript::new(include_str!(
                "../../../../lua/lock/reentrant/cut_leases.lua"
            )),
        }
    }

    pub(super) async fn acquire(
        &self,
        link: &Link,
        name: &str,
        holder: &Holder,
        is_fenced: bool,
    ) -> RedisResult<Tried> {
        let lease_ms = milliseconds(holder.lease);
        let arguments = [lease_ms.as_str(), holder.as_str()];
        if is_fenced {
            let keys = [name, &token_key(name)];
            let (left_ms, token): (i64, i64) =
                self.acquire_fenced.run(link, keys, &arguments).await?;
            // A token is never negative: -1 is Redisson's word for "none was drawn".
            return Ok(match u64::try_from(token) {
                Ok(token) => Tried::Ours(Some(token)),
                Err(_) => Tried::held(left_ms),
            });
        }
        let left_ms: Option<i64> = self.acquire.run(link, [name], &arguments).await?;
        Ok(left_ms.map_or(Tried::Ours(None), Tried::held))
    }

    /// May be sent again with the same `request` while `latch` lasts: the answer is the first one's.
    pub(super) async fn unlock(
        &self,
        link: &Link,
        name: &str,
        holder: &Holder,
        request: &str,
    ) -> RedisResult<Released> {
        let keys = [name, &channel(name), &latch_key(name, request)];
        let lease_ms = milliseconds(holder.lease);
        let latch_ms = milliseconds(limits::LOCK_LATCH_KEPT);
        let arguments = [FREE, &lease_ms, holder.as_str(), PUBLISH, &latch_ms];
        let answer: Option<i64> = self.unlock.run(link, keys, &arguments).await?;
        Ok(match answer {
            None => Released::NotHeld,
            Some(0) => Released::StillHeld,
            Some(_) => Released::Freed,
        })
    }

    /// True if somebody held it.
    pub(super) async fn force_unlock(&self, link: &Link, name: &str) -> RedisResult<bool> {
        self.force_unlock.run(link, [name, &channel(name)], &[FREE, PUBLISH]).await
    }

    /// For each lock whether it is still its holder's.
    pub(super) async fn renew(
        &self,
        link: &Link,
        lease: Duration,
        locks: &[(&str, &Holder)],
    ) -> RedisResult<Vec<bool>> {
        let keys: Vec<&str> = locks.iter().map(|(name, _)| *name).collect();
        let lease_ms = milliseconds(lease);
        let holders = locks.iter().map(|(_, holder)| holder.as_str());
        let arguments: Vec<&str> = std::iter::once(lease_ms.as_str()).chain(holders).collect();
        self.renew.run(link, &keys, arguments).await
    }

    /// For each lock whether it was free and is the holder's now.
    pub(super) async fn acquire_batch(
        &self,
        link: &Link,
        names: &[String],
        holder: &Holder,
    ) -> RedisResult<Vec<bool>> {
        let keys: Vec<&str> = names.iter().map(String::as_str).collect();
        let lease_ms = milliseconds(holder.lease);
        self.acquire_batch.run(link, &keys, &[lease_ms.as_str(), holder.as_str()]).await
    }

    /// Leaves `lease` of each lease that is longer than `lease_max`. Returns how many there were.
    pub(super) async fn cut_leases(
        &self,
        link: &Link,
        names: &[impl AsRef<str>],
        lease_max: Duration,
        lease: Duration,
    ) -> RedisResult<usize> {
        let keys: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        self.cut_leases.run(link, &keys, &[milliseconds(lease_max), milliseconds(lease)]).await
    }

    /// How many of the locks were the holder's.
    pub(super) async fn unlock_batch(
        &self,
        link: &Link,
        names: &[String],
        holder: &Holder,
    ) -> RedisResult<usize> {
        let keys: Vec<&str> = names.iter().map(String::as_str).collect();
        let channels = format!("{CHANNEL}:*");
        self.unlock_batch.run(link, &keys, &[FREE, holder.as_str(), &channels]).await
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
    fn a_lock_that_never_runs_out_has_no_time_left() {
        assert_eq!(Tried::held(-1), Tried::Held(None));
        assert_eq!(Tried::held(250), Tried::Held(Some(Duration::from_millis(250))));
    }
}
