//! The state of a log and its group, from XINFO.

use std::collections::BTreeMap;

use redis::{RedisError, RedisResult, Value};

use super::entry::EntryId;
use crate::store::ids::Lane;
use crate::store::keys::Keys;
use crate::store::redis::Redis;

/// The consumer group that writes orders.
pub const GROUP: &str = "order-writers";
/// Its only consumer: all owners that a lane ever has read its log under this name.
pub const CONSUMER: &str = "owner";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    /// Entries delivered to a worker and not acknowledged.
    pub pending: u64,
    /// Orders of entries that are not acknowledged.
    pub unwritten: u64,
    /// Orders of acknowledged entries. If no entry is left for a worker, these are all accepted orders, even if entries
    /// were deleted.
    pub written: u64,
    /// Id of the last entry that is there; the lowest id for an empty log. Nobody reads an entry that was deleted.
    pub last: EntryId,
    /// Id of the last entry that was delivered to any consumer; `None` without a group.
    pub delivered: Option<EntryId>,
}

impl LogState {
    /// The state of this lane's log, in one round trip. A log that doesn't exist has no backlog.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer, or one of the keys has another type.
    pub async fn of(redis: &Redis, keys: &Keys, lane: Lane) -> RedisResult<Self> {
        let mut commands = redis::pipe();
        // The counts first: then a log that looks settled has written every order that they include.
        commands.cmd("HMGET").arg(keys.lane(lane)).arg("accepted").arg("written");
        commands.cmd("XINFO").arg("STREAM").arg(keys.log(lane));
        commands.cmd("XINFO").arg("GROUPS").arg(keys.log(lane));
        Self::read(&redis.query_each(&commands).await?)
    }

    /// Reads Redis's replies about the counts of a lane, a stream, and its groups.
    fn read(replies: &[RedisResult<Value>]) -> RedisResult<Self> {
        let [counts, stream, groups] = replies else {
            return Err((redis::ErrorKind::Client, "three answers were expected").into());
        };
        let group = our_group(groups)?;
        let mut state = Self::default();
        if let Some(stream) = answer::<Facts>(stream)? {
            state.last = last_entry(&stream).unwrap_or_default();
        }
        if let Some(group) = group {
            state.pending = fact(&group, "pending").unwrap_or(0);
            state.delivered = Some(fact_id(&group, "last-delivered-id").unwrap_or_default());
        }
        let counts: (Option<u64>, Option<u64>) =
            redis::from_redis_value_ref(counts.as_ref().map_err(Clone::clone)?)?;
        let accepted = counts.0.unwrap_or(0);
        state.written = match state.is_settled() {
            true => accepted,
            // An entry that was delivered again by hand has been counted twice.
            false => counts.1.unwrap_or(0).min(accepted),
        };
        state.unwritten = accepted - state.written;
        Ok(state)
    }

    /// Whether no entry is left for a worker: the log is empty, or the group has acknowledged all entries.
    pub fn is_settled(&self) -> bool {
        self.pending == 0 && !self.has_unread()
    }

    /// Whether an entry hasn't been delivered to any worker.
    pub fn has_unread(&self) -> bool {
        self.delivered.unwrap_or_default() < self.last
    }
}

/// How far a log has been acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Id of the last entry ever appended.
    pub last: EntryId,
    /// Highest id up to which every entry is acknowledged.
    pub acknowledged: EntryId,
}

/// The progress of a log; `None` if it isn't there.
///
/// # Errors
///
/// When Redis doesn't answer, or the key has another type.
pub async fn progress(redis: &Redis, log: &str) -> RedisResult<Option<Progress>> {
    let mut commands = redis::pipe();
    // In this order, so that an entry which is delivered after the second command isn't taken for acknowledged.
    commands.cmd("XINFO").arg("STREAM").arg(log);
    commands.cmd("XINFO").arg("GROUPS").arg(log);
    commands.cmd("XPENDING").arg(log).arg(GROUP);
    let replies = redis.query_each::<Value>(&commands).await?;
    let [stream, groups, pending] = &replies[..] else {
        return Err((redis::ErrorKind::Client, "three answers were expected").into());
    };
    let Some(stream) = answer::<Facts>(stream)? else {
        return Ok(None);
    };
    let last = fact_id(&stream, "last-generated-id").unwrap_or_default();
    let Some(group) = our_group(groups)? else {
        return Ok(Some(Progress { last, ..Progress::default() }));
    };
    let delivered = fact_id(&group, "last-delivered-id").unwrap_or_default();
    let pending = pending.as_ref().map_err(Clone::clone)?;
    let (_, oldest, _, _): (i64, Option<String>, Value, Value) =
        redis::from_redis_value_ref(pending)?;
    let oldest = oldest.and_then(|oldest| oldest.parse::<EntryId>().ok());
    Ok(Some(Progress { last, acknowledged: oldest.map_or(delivered, EntryId::before) }))
}

/// Names and values, as XINFO returns them.
type Facts = BTreeMap<String, Value>;

fn fact<T: redis::FromRedisValue>(facts: &Facts, name: &str) -> Option<T> {
    facts.get(name).and_then(|value| redis::from_redis_value_ref::<Option<T>>(value).ok()?)
}

/// Our group among those that XINFO returns.
fn our_group(reply: &RedisResult<Value>) -> RedisResult<Option<Facts>> {
    let groups: Vec<Facts> = answer(reply)?.unwrap_or_default();
    let is_ours = |group: &Facts| fact::<String>(group, "name").as_deref() == Some(GROUP);
    Ok(groups.into_iter().find(is_ours))
}

/// Id of the last entry that is there.
fn last_entry(stream: &Facts) -> Option<EntryId> {
    let (id, _): (String, Value) = fact(stream, "last-entry")?;
    id.parse().ok()
}

fn fact_id(facts: &Facts, name: &str) -> Option<EntryId> {
    fact::<String>(facts, name)?.parse().ok()
}

/// The value of a reply; `None` if there is no such key.
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

    /// Redis's replies: the last entry, the group's position and pending entries, and the counts of the lane.
    fn state(last: &str, (delivered, pending): (&str, i64), counts: (i64, i64)) -> LogState {
        let text = |text: &str| Value::SimpleString(text.to_owned());
        let facts = |facts: &[(&str, Value)]| {
            Value::Map(facts.iter().map(|(name, value)| (text(name), value.clone())).collect())
        };
        let entry = Value::Array(vec![text(last), Value::Array(Vec::new())]);
        let stream = facts(&[("last-entry", entry)]);
        let group = facts(&[
            ("name", text(GROUP)),
            ("last-delivered-id", text(delivered)),
            ("pending", Value::Int(pending)),
        ]);
        let counts = Value::Array(vec![Value::Int(counts.0), Value::Int(counts.1)]);
        let replies = [Ok(counts), Ok(stream), Ok(Value::Array(vec![group]))];
        LogState::read(&replies).expect("answers of Redis")
    }

    #[test]
    fn orders_are_counted_by_the_lane() {
        for (group, counts, unwritten, settled) in [
            (("5-2", 0), (700, 700), 0, true),
            (("5-2", 2), (700, 300), 400, false),
            (("5-1", 0), (700, 699), 1, false),
            // An entry that isn't counted, and a lane whose counts are gone.
            (("5-1", 1), (0, 0), 0, false),
            (("5-2", 0), (0, 128), 0, true),
            // Entries that were deleted by hand.
            (("5-2", 0), (700, 300), 0, true),
        ] {
            let found = state("5-2", group, counts);
            assert_eq!((found.unwritten, found.is_settled()), (unwritten, settled), "{counts:?}");
        }
    }

    #[test]
    fn ids_of_entries_are_compared_as_numbers() {
        for (last, delivered, has_unread) in
            [("10-0", "9-5", true), ("9-10", "9-9", true), ("9-10", "10-0", false)]
        {
            assert_eq!(state(last, (delivered, 0), (1, 0)).has_unread(), has_unread, "{last}");
        }
    }

    #[test]
    fn only_a_missing_key_is_no_answer() {
        let refused = |words: &'static str| {
            Err(redis::make_extension_error("ERR".to_owned(), Some(words.to_owned())))
        };
        assert_eq!(answer::<i64>(&Ok(Value::Int(7))).expect("a number"), Some(7));
        assert_eq!(answer::<i64>(&refused("no such key")).expect("no answer"), None);
        assert!(answer::<i64>(&refused("something else")).is_err());
        assert!(answer::<i64>(&Ok(Value::SimpleString("x".to_owned()))).is_err());
    }

    #[test]
    fn our_group_is_found_among_others() {
        let text = |text: &str| Value::SimpleString(text.to_owned());
        let group = |name, pending| {
            Value::Map(vec![(text("name"), text(name)), (text("pending"), Value::Int(pending))])
        };
        for (groups, pending) in [
            (vec![], None),
            (vec![group("relay", 3)], None),
            (vec![group("relay", 3), group(GROUP, 4), group("other", 5)], Some(4)),
        ] {
            let found = our_group(&Ok(Value::Array(groups))).expect("groups");
            assert_eq!(found.and_then(|group| fact::<i64>(&group, "pending")), pending);
        }
    }
}
