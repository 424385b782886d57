//! The state of a log and its group, from XINFO.

use std::collections::BTreeMap;

use redis::{RedisError, RedisResult, Value};

use super::entry::EntryId;
use crate::kit::redis::Redis;

/// The consumer group that writes orders.
pub const GROUP: &str = "order-writers";

/// Logs that Redis is asked about in one round trip.
const LOGS_AT_A_TIME: usize = 128;

/// State of a log and its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    /// Entries delivered to a worker and not acknowledged.
    pub pending: u64,
    /// Entries not delivered yet.
    pub unread: u64,
    /// Entries ever appended, trimmed ones included.
    pub appended: u64,
    /// Id of the last entry that was ever appended; the lowest id for a log that isn't there.
    pub last: EntryId,
    /// Id of the last entry that was delivered to any consumer; `None` without a group.
    pub delivered: Option<EntryId>,
}

impl LogState {
    /// The state of the log under this key. A log that doesn't exist has no backlog.
    pub async fn of(redis: &Redis, key: &str) -> RedisResult<Self> {
        Ok(Self::of_all(redis, &[key]).await?.pop().unwrap_or_default())
    }

    /// The states of the logs under these keys, in few round trips.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer, or one of the keys has another type.
    pub async fn of_all(redis: &Redis, keys: &[impl AsRef<str>]) -> RedisResult<Vec<Self>> {
        let mut states = Vec::with_capacity(keys.len());
        for some in keys.chunks(LOGS_AT_A_TIME) {
            let mut commands = redis::pipe();
            for key in some {
                // The log first: an entry that is delivered between the two is only counted as unread as well.
                commands.cmd("XINFO").arg("STREAM").arg(key.as_ref());
                commands.cmd("XINFO").arg("GROUPS").arg(key.as_ref());
            }
            let replies: Vec<RedisResult<Value>> = redis.query_each(&mut commands).await?;
            for pair in replies.chunks_exact(2) {
                states.push(Self::read(pair)?);
            }
        }
        Ok(states)
    }

    /// Reads XINFO's answers about a stream and its groups.
    fn read(replies: &[RedisResult<Value>]) -> RedisResult<Self> {
        let Some(stream) = answer::<Facts>(&replies[0])? else {
            return Ok(Self::default());
        };
        Ok(Self::judge(&stream, our_group(&replies[1])?.as_ref()))
    }

    /// **Every reader of a lag goes through here.** Redis's `lag` is its count of entries added, less its count of
    /// entries read. After a restart, the count of reads is that of the last rewrite of its file, so the lag is
    /// believed only as far as there can be unread entries: none when the group has been given the last one, and
    /// never more than the log has. The same bound holds without a group, or when Redis doesn't tell a lag.
    fn judge(stream: &Facts, group: Option<&Facts>) -> Self {
        let length = fact(stream, "length").unwrap_or(0);
        let last = fact_id(stream, "last-generated-id").unwrap_or_default();
        let delivered = group.map(|group| fact_id(group, "last-delivered-id").unwrap_or_default());
        let lag = group.and_then(|group| fact(group, "lag")).unwrap_or(length);
        let unread = if delivered.is_some_and(|id| id >= last) { 0 } else { lag.min(length) };
        Self {
            pending: group.and_then(|group| fact(group, "pending")).unwrap_or(0),
            unread,
            appended: fact(stream, "entries-added").unwrap_or(0),
            last,
            delivered,
        }
    }

    /// Entries that are no rows yet.
    pub fn unwritten(&self) -> u64 {
        self.pending + self.unread
    }

    /// Whether no work is left: the group is there, and has acknowledged all entries ever appended.
    pub fn is_settled(&self) -> bool {
        self.delivered.is_some() && self.unwritten() == 0
    }
}

/// State of the group of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupState {
    /// Entries delivered and not acknowledged.
    pub pending: u64,
    /// Id of the last entry that was delivered.
    pub delivered: EntryId,
}

/// The state of the group of each of these logs; `None` where it is missing.
///
/// # Errors
///
/// When Redis doesn't answer, or one of the keys has another type.
pub async fn groups(redis: &Redis, logs: &[String]) -> RedisResult<Vec<Option<GroupState>>> {
    let mut groups = Vec::with_capacity(logs.len());
    for some in logs.chunks(LOGS_AT_A_TIME) {
        let mut commands = redis::pipe();
        for key in some {
            commands.cmd("XINFO").arg("GROUPS").arg(key);
        }
        for reply in redis.query_each(&mut commands).await? {
            groups.push(our_group(&reply)?.map(|group| GroupState {
                pending: fact(&group, "pending").unwrap_or(0),
                delivered: fact_id(&group, "last-delivered-id").unwrap_or_default(),
            }));
        }
    }
    Ok(groups)
}

/// Names and values, as XINFO answers them.
pub(super) type Facts = BTreeMap<String, Value>;

pub(super) fn fact<T: redis::FromRedisValue>(facts: &Facts, name: &str) -> Option<T> {
    facts.get(name).and_then(|value| redis::from_redis_value_ref::<Option<T>>(value).ok()?)
}

/// The group among those in XINFO's answer.
fn our_group(reply: &RedisResult<Value>) -> RedisResult<Option<Facts>> {
    let groups: Vec<Facts> = answer(reply)?.unwrap_or_default();
    let is_ours = |group: &Facts| fact::<String>(group, "name").as_deref() == Some(GROUP);
    Ok(groups.into_iter().find(is_ours))
}

fn fact_id(facts: &Facts, name: &str) -> Option<EntryId> {
    fact::<String>(facts, name)?.parse().ok()
}

/// The answer; `None` where there is no such key.
fn answer<T: redis::FromRedisValue>(reply: &RedisResult<Value>) -> RedisResult<Option<T>> {
    match reply {
        Ok(value) => Ok(Some(redis::from_redis_value_ref(value)?)),
        Err(error) if is_missing_key(error) => Ok(None),
        Err(error) => Err(error.clone()),
    }
}

fn is_missing_key(error: &RedisError) -> bool {
    error.to_string().contains("no such key")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// XINFO's answer: a log of so many entries, the last one added, and the group's position and counts.
    fn state(length: i64, last: &str, group: Option<(&str, i64, Option<i64>)>) -> LogState {
        let text = |text: &str| Value::SimpleString(text.to_owned());
        let facts = |facts: &[(&str, Value)]| -> Facts {
            facts.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
        };
        let stream = facts(&[
            ("length", Value::Int(length)),
            ("entries-added", Value::Int(1_600)),
            ("last-generated-id", text(last)),
        ]);
        let group = group.map(|(delivered, pending, lag)| {
            facts(&[
                ("name", text(GROUP)),
                ("last-delivered-id", text(delivered)),
                ("pending", Value::Int(pending)),
                ("lag", lag.map_or(Value::Nil, Value::Int)),
            ])
        });
        LogState::judge(&stream, group.as_ref())
    }

    #[test]
    fn a_lag_is_believed_as_far_as_there_can_be_unread_entries() {
        for (length, last, group, unread, pending) in [
            // Correct counts.
            (100, "5-2", Some(("5-2", 0, Some(0))), 0, 0),
            (100, "5-2", Some(("5-1", 3, Some(1))), 1, 3),
            // Redis has counted from its last rewrite on.
            (100, "5-2", Some(("5-2", 7, Some(1_500))), 0, 7),
            (100, "5-2", Some(("4-9", 0, Some(1_510))), 100, 0),
            (0, "5-2", Some(("4-9", 0, Some(1_500))), 0, 0),
            // Redis tells no lag.
            (100, "5-2", Some(("5-2", 0, None)), 0, 0),
            (100, "5-2", Some(("5-1", 0, None)), 100, 0),
            (100, "5-2", None, 100, 0),
            // An id is compared as numbers: first its time, then its sequence.
            (100, "10-0", Some(("9-5", 0, Some(2))), 2, 0),
            (100, "9-10", Some(("9-9", 0, Some(1))), 1, 0),
            (100, "9-10", Some(("10-0", 0, Some(1))), 0, 0),
        ] {
            let found = state(length, last, group);
            assert_eq!((found.unread, found.pending), (unread, pending), "{last} {group:?}");
            assert_eq!(found.is_settled(), group.is_some() && unread + pending == 0);
        }
    }
}
