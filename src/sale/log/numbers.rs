//! Entries that wait in the order log, and the age of the oldest.
//!
//! The age of an entry is the time of Redis's clock past the entry's own. A clock that was set back shows too little,
//! or nothing, so the age is at least the time for which this process has seen the same entry wait.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use redis::RedisResult;
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::kit::redis::Redis;
use crate::sale::ids::Lane;
use crate::sale::keys::Keys;
use crate::sale::log::{Entries, Entry, EntryId, GROUP, LogState};

/// Waiting orders of the order log.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub struct LogNumbers {
    /// Orders of entries that are pending for a worker.
    pub pending: u64,
    /// Orders of entries that no worker has read yet.
    pub unread: u64,
    /// Age of the oldest entry that isn't acknowledged; 0 without any.
    pub oldest_entry_ms: u64,
}

/// Remembers the oldest entry of each log, and since when it has waited.
#[derive(Default)]
pub struct Oldest(Mutex<HashMap<Lane, (EntryId, Instant)>>);

impl LogNumbers {
    /// Looks at the log of a lane, which is in this state.
    pub async fn look(
        redis: &Redis,
        keys: &Keys,
        lane: Lane,
        state: &LogState,
        oldest: &Oldest,
    ) -> RedisResult<Self> {
        let key = keys.log(lane);
        let first_unread = match state.has_unread() {
            true => first_unread(redis, &key, state).await?,
            false => None,
        };
        let promised = state.unwritten + state.written;
        let first_number = first_unread.as_ref().and_then(|entry| entry.first);
        let unread = first_number.map_or(0, |first| (promised + 1).saturating_sub(first));
        let pending = state.unwritten.saturating_sub(unread);
        let first = match state.pending {
            0 => first_unread.map(|entry| entry.id),
            _ => first_pending(redis, &key).await?,
        };
        let seen = oldest.note(lane, first);
        let Some(id) = first else {
            return Ok(Self { pending, unread, oldest_entry_ms: 0 });
        };
        let (seconds, micros): (u64, u64) = redis.query(&redis::cmd("TIME")).await?;
        let by_redis = (seconds * 1_000 + micros / 1_000).saturating_sub(id.ms);
        let by_us = u64::try_from(seen.as_millis()).unwrap_or(u64::MAX);
        Ok(Self { pending, unread, oldest_entry_ms: by_redis.max(by_us) })
    }

    /// The waiting orders of two lanes together.
    pub fn with(self, other: Self) -> Self {
        Self {
            pending: self.pending + other.pending,
            unread: self.unread + other.unread,
            oldest_entry_ms: self.oldest_entry_ms.max(other.oldest_entry_ms),
        }
    }
}

impl Oldest {
    /// Time for which this entry has been the oldest of its log here.
    fn note(&self, lane: Lane, first: Option<EntryId>) -> Duration {
        let mut seen = self.0.lock().expect("no holder of this lock panics");
        let Some(id) = first else {
            seen.remove(&lane);
            return Duration::ZERO;
        };
        let (of, since) = seen.entry(lane).or_insert_with(|| (id, Instant::now()));
        if *of != id {
            (*of, *since) = (id, Instant::now());
        }
        since.elapsed()
    }
}

async fn first_pending(redis: &Redis, key: &str) -> RedisResult<Option<EntryId>> {
    let mut command = redis::cmd("XPENDING");
    command.arg(key).arg(GROUP).arg("-").arg("+").arg(1);
    let first: Vec<(String, String, u64, u64)> = redis.query(&command).await?;
    Ok(first.first().and_then(|(id, ..)| id.parse().ok()))
}

async fn first_unread(redis: &Redis, key: &str, state: &LogState) -> RedisResult<Option<Entry>> {
    let from = state.delivered.map_or_else(|| "-".to_owned(), |id| format!("({id}"));
    let mut command = redis::cmd("XRANGE");
    command.arg(key).arg(from).arg("+").arg("COUNT").arg(1);
    let first: Entries = redis.query(&command).await?;
    Ok(first.0.into_iter().next())
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_entry_grows_old_by_our_clock_too() {
        bound_this_test();
        let oldest = Oldest::default();
        let log = Lane::numbered(0);
        let first = EntryId { ms: u64::MAX, sequence: 0 };
        assert_eq!(oldest.note(log, Some(first)), Duration::ZERO);
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(oldest.note(log, Some(first)), Duration::from_secs(7));
        let next = EntryId { sequence: 1, ..first };
        assert_eq!(oldest.note(log, Some(next)), Duration::ZERO, "another entry");
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(oldest.note(log, None), Duration::ZERO);
        assert_eq!(oldest.note(log, Some(next)), Duration::ZERO, "nothing waited in between");
    }
}
