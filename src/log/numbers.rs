//! Orders that wait in the order log, and the age of the oldest entry by Redis's clock.

use redis::RedisResult;
use serde::Serialize;
use utoipa::ToSchema;

use crate::log::{Entries, Entry, EntryId, GROUP, LogState};
use crate::store::ids::Lane;
use crate::store::keys::Keys;
use crate::store::redis::Redis;

/// Orders that wait in the order log.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub struct LogNumbers {
    /// Orders of entries that a worker has read and not acknowledged.
    pub pending: u64,
    /// Orders of entries that no worker has read yet.
    pub unread: u64,
    /// Age of the oldest entry that isn't acknowledged, in milliseconds; 0 if there is none.
    pub oldest_entry_ms: u64,
}

impl LogNumbers {
    /// Reads the numbers of a lane whose log is in this state.
    pub async fn check(
        redis: &Redis,
        keys: &Keys,
        lane: Lane,
        state: &LogState,
    ) -> RedisResult<Self> {
        let key = keys.log(lane);
        let first_unread = match state.has_unread() {
            true => first_unread(redis, &key, state).await?,
            false => None,
        };
        let accepted = state.unwritten + state.written;
        let first_number = first_unread.as_ref().and_then(|entry| entry.first);
        let unread = first_number.map_or(0, |first| (accepted + 1).saturating_sub(first));
        let pending = state.unwritten.saturating_sub(unread);
        let first = match state.pending {
            0 => first_unread.map(|entry| entry.id),
            _ => first_pending(redis, &key).await?,
        };
        let Some(id) = first else {
            return Ok(Self { pending, unread, oldest_entry_ms: 0 });
        };
        let (seconds, micros): (u64, u64) = redis.query(&redis::cmd("TIME")).await?;
        let oldest_entry_ms = (seconds * 1_000 + micros / 1_000).saturating_sub(id.ms);
        Ok(Self { pending, unread, oldest_entry_ms })
    }

    /// The numbers of two lanes together.
    pub fn with(self, other: Self) -> Self {
        Self {
            pending: self.pending + other.pending,
            unread: self.unread + other.unread,
            oldest_entry_ms: self.oldest_entry_ms.max(other.oldest_entry_ms),
        }
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
