//! The order log: one Redis Stream for each lane, read by the group `order-writers`.
//!
//! Accepted claims are appended by `lua/claim.lua`, in the same step that takes the stock. From here
//! the worker reads them. What this file promises:
//!
//! * An entry leaves the group's pending list only through [`OrderLog::acknowledge`].
//! * The log is trimmed only behind what every group has finished with.
//! * A consumer is removed only when it holds nothing.
//! * A vanished group is created again from the log's start, never from its end.

// Bound of what waits to be written.
pub mod backlog;

// Gauges of the log.
pub mod numbers;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, Utc};
use redis::{RedisError, RedisResult, Value};

use crate::base::limits;
use crate::kit::redis::Redis;
use crate::kit::script::Script;
use crate::sale::ids::{CouponId, Lane, OrderId, UserId};
use crate::sale::keys::Keys;

/// Logs that Redis is asked about in one round trip.
const LOGS_AT_A_TIME: usize = 128;

/// The consumer group that writes orders.
pub const GROUP: &str = "order-writers";

/// An accepted claim, as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedClaim {
    /// The order that it becomes.
    pub order_id: OrderId,
    /// What was claimed.
    pub coupon_id: CouponId,
    /// By whom.
    pub user_id: UserId,
    /// When, by Redis's clock: the time in the entry's id.
    pub claimed_at: DateTime<Utc>,
}

/// One entry of the log.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// `<ms>-<sequence>`.
    pub id: String,
    /// Its fields: name, value, name, value ... Empty when the log has lost it.
    pub payload: Vec<Vec<u8>>,
    /// What it says, or why that can't be read.
    pub claim: Result<LoggedClaim, &'static str>,
}

/// Names an entry: entries are in the order of their ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId {
    /// Redis's clock when it was appended, in milliseconds since 1970, or that of the entry before if the clock was
    /// behind it.
    pub ms: u64,
    /// Counts the entries of one millisecond.
    pub sequence: u64,
}

/// Where a log and its group stand.
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
    /// Id of the last entry that was delivered to anybody; `None` without a group.
    pub delivered: Option<EntryId>,
}

/// What one step of taking over found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeOver {
    /// Entries that are ours now.
    pub entries: usize,
    /// Entries that the log has lost while they were pending: each of them is a lost order. Redis has
    /// taken them off the pending list, so this is the only time that it names them.
    pub lost: Vec<String>,
    /// Where to go on; nothing at the end.
    pub next: Option<String>,
}

/// What a consumer holds. While all of it stays as it is, the consumer neither finishes an entry nor looks at one again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its name.
    pub consumer: String,
    /// Entries.
    pub entries: u64,
    /// The first of them.
    pub first: String,
    /// How often that one was delivered.
    pub deliveries: u64,
}

/// What making sure of the group has created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Created {
    /// The group.
    pub group: bool,
    /// The log itself, too.
    pub log: bool,
}

/// The log of one lane, seen by one consumer.
pub struct OrderLog {
    redis: Redis,
    /// Reads entries: large replies, for which claims don't wait on a connection of their own.
    reader: Redis,
    key: String,
    lane: Lane,
    consumer: String,
    ensure_group: Script<1>,
    trim: Script<1>,
    remove_consumer: Script<1>,
}

/// Entry id, consumer, idle ms, deliveries.
type Pending = (String, String, u64, u64);

/// Reply to XREADGROUP: for each stream its entries, an entry being an id and, unless the log has
/// lost it, its fields.
type ReadReply = Option<BTreeMap<String, Vec<(String, Option<Vec<Vec<u8>>>)>>>;

impl OrderLog {
    /// The log of `lane`, to be read as `consumer`, whose name has to be unique for each writer.
    pub fn new(redis: Redis, keys: &Keys, lane: Lane, consumer: String) -> Self {
        Self {
            reader: redis.clone(),
            redis,
            key: keys.log(lane),
            lane,
            consumer,
            ensure_group: Script::new(include_str!("../../../lua/ensure_group.lua")),
            trim: Script::new(include_str!("../../../lua/trim_log.lua")),
            remove_consumer: Script::new(include_str!("../../../lua/remove_consumer.lua")),
        }
    }

    /// The same, read over another connection.
    #[must_use]
    pub fn read_over(self, reader: Redis) -> Self {
        Self { reader, ..self }
    }

    /// Which lane it is.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// Name of its key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Up to `count` entries that nobody has been given yet. Never waits for one.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer. Entries may have been delivered then: read
    /// [pending ones](Self::read_pending) next.
    pub async fn read_new(&self, count: usize) -> RedisResult<Vec<LogEntry>> {
        self.read(count, ">").await
    }

    /// Up to `count` entries that were delivered to this consumer and not acknowledged, with ids
    /// above `after` (`0` for the start).
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn read_pending(&self, count: usize, after: &str) -> RedisResult<Vec<LogEntry>> {
        self.read(count, after).await
    }

    async fn read(&self, count: usize, after: &str) -> RedisResult<Vec<LogEntry>> {
        let mut command = redis::cmd("XREADGROUP");
        command.arg("GROUP").arg(GROUP).arg(&self.consumer).arg("COUNT").arg(count);
        command.arg("STREAMS").arg(&self.key).arg(after);
        let reply: ReadReply = self.reader.query(&command).await?;
        let streams = reply.into_iter().flatten();
        Ok(streams
            .flat_map(|(_, entries)| entries)
            .map(|(id, fields)| LogEntry::new(id, fields))
            .collect())
    }

    /// Takes the entries off the pending list. Only for what is in Postgres.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer. They will be read again then, and change nothing.
    pub async fn acknowledge<'a>(
        &self,
        entry_ids: impl Iterator<Item = &'a str>,
    ) -> RedisResult<()> {
        let mut command = redis::cmd("XACK");
        command.arg(&self.key).arg(GROUP);
        let named = entry_ids.fold(0, |named, id| {
            command.arg(id);
            named + 1
        });
        if named > 0 {
            self.redis.query::<u64>(&command).await?;
        }
        Ok(())
    }

    /// Takes over up to `count` entries that have been held for `idle` without being acknowledged; they
    /// become this consumer's pending entries. Begins at `from`, `0-0` for the start.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn take_over(
        &self,
        idle: Duration,
        count: usize,
        from: &str,
    ) -> RedisResult<TakeOver> {
        let idle_ms = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        let mut command = redis::cmd("XAUTOCLAIM");
        command.arg(&self.key).arg(GROUP).arg(&self.consumer).arg(idle_ms).arg(from);
        command.arg("COUNT").arg(count).arg("JUSTID");
        let (next, taken, lost): (String, Vec<String>, Vec<String>) =
            self.redis.query(&command).await?;
        let next = Some(next).filter(|next| next != "0-0");
        Ok(TakeOver { entries: taken.len(), lost, next })
    }

    /// What every other consumer holds.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn held_by_others(&self) -> RedisResult<Vec<Held>> {
        let mut command = redis::cmd("XPENDING");
        command.arg(&self.key).arg(GROUP);
        type Summary = (u64, Value, Value, Option<Vec<(String, String)>>);
        let (_, _, _, consumers): Summary = self.redis.query(&command).await?;
        let of_others = |(name, _): &(String, String)| *name != self.consumer;
        let consumers: Vec<_> = consumers.into_iter().flatten().filter(of_others).collect();
        let mut commands = redis::pipe();
        for (name, _) in &consumers {
            commands.cmd("XPENDING").arg(&self.key).arg(GROUP).arg("-").arg("+").arg(1).arg(name);
        }
        let firsts: Vec<Vec<Pending>> = match consumers.is_empty() {
            true => Vec::new(),
            false => self.redis.query_all(&commands).await?,
        };
        let held = consumers.into_iter().zip(firsts).filter_map(|((consumer, entries), first)| {
            let (first, _, _, deliveries) = first.into_iter().next()?;
            Some(Held { consumer, entries: entries.parse().ok()?, first, deliveries })
        });
        Ok(held.collect())
    }

    /// Takes over up to `count` entries that this consumer holds, however short a time that seems to be.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn take_over_from(&self, consumer: &str, count: usize) -> RedisResult<TakeOver> {
        let mut command = redis::cmd("XPENDING");
        command.arg(&self.key).arg(GROUP).arg("-").arg("+").arg(count).arg(consumer);
        let held: Vec<Pending> = self.redis.query(&command).await?;
        let mut commands = redis::pipe();
        for (id, ..) in &held {
            // One by one, because XAUTOCLAIM names what the log has lost, and XCLAIM drops it silently.
            commands.cmd("XAUTOCLAIM").arg(&self.key).arg(GROUP).arg(&self.consumer);
            commands.arg(0).arg(id).arg("COUNT").arg(1).arg("JUSTID");
        }
        let mut step = TakeOver { entries: 0, lost: Vec::new(), next: None };
        if !held.is_empty() {
            let replies: Vec<(String, Vec<String>, Vec<String>)> =
                self.redis.query_all(&commands).await?;
            for (_, taken, lost) in replies {
                step.entries += taken.len();
                step.lost.extend(lost);
            }
        }
        Ok(step)
    }

    /// Creates the group if it isn't there, at the log's start: what was acknowledged before is in
    /// Postgres and is recognised there, what wasn't would be lost from anywhere else.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn ensure_group(&self) -> RedisResult<Created> {
        let link = self.redis.link().await?;
        let reply: String = self.ensure_group.run(&link, [&self.key], &[GROUP][..]).await?;
        Ok(Created { group: reply != "PRESENT", log: reply == "CREATED_LOG" })
    }

    /// Where this log stands.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn state(&self) -> RedisResult<LogState> {
        LogState::of(&self.redis, &self.key).await
    }

    /// Drops entries that every group has finished with. Returns how many.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn trim(&self) -> RedisResult<u64> {
        let link = self.redis.link().await?;
        self.trim.run(&link, [&self.key], &[] as &[&str]).await
    }

    /// Removes this consumer, unless it still holds entries; those are left for others to take over.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn leave(&self) -> RedisResult<()> {
        self.remove(&self.consumer).await
    }

    /// Removes consumers that have been idle for `idle` and hold nothing: those of processes that died.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn remove_idle_consumers(&self, idle: Duration) -> RedisResult<()> {
        let mut command = redis::cmd("XINFO");
        let consumers: Vec<Facts> =
            self.redis.query(command.arg("CONSUMERS").arg(&self.key).arg(GROUP)).await?;
        for consumer in consumers {
            let idle_ms: u64 = fact(&consumer, "idle").unwrap_or(0);
            let name: String = fact(&consumer, "name").unwrap_or_default();
            if u128::from(idle_ms) > idle.as_millis() && name != self.consumer {
                self.remove(&name).await?;
            }
        }
        Ok(())
    }

    /// The script checks that the consumer holds nothing: XGROUP DELCONSUMER doesn't.
    async fn remove(&self, consumer: &str) -> RedisResult<()> {
        let link = self.redis.link().await?;
        let _held: u64 =
            self.remove_consumer.run(&link, [&self.key], &[GROUP, consumer][..]).await?;
        Ok(())
    }
}

impl LogEntry {
    /// Reads an entry; `None` for the fields of one that the log has lost.
    pub fn new(id: String, fields: Option<Vec<Vec<u8>>>) -> Self {
        let payload = fields.unwrap_or_default();
        let claim = decode(&id, &payload);
        Self { id, payload, claim }
    }

    /// Whether the log has lost what stood here.
    pub fn is_lost(&self) -> bool {
        self.payload.is_empty()
    }
}

impl LogState {
    /// Where the log under this key stands. A log that doesn't exist has no backlog.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn of(redis: &Redis, key: &str) -> RedisResult<Self> {
        Ok(Self::of_all(redis, &[key]).await?.pop().unwrap_or_default())
    }

    /// Where the logs under these keys stand, in few round trips.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer, or one of the keys holds something else.
    pub async fn of_all(redis: &Redis, keys: &[impl AsRef<str>]) -> RedisResult<Vec<Self>> {
        let mut states = Vec::with_capacity(keys.len());
        for some in keys.chunks(LOGS_AT_A_TIME) {
            let mut commands = redis::pipe();
            for key in some {
                // The log first: what is delivered between the two is only counted as unread as well.
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

    /// Reads what XINFO says of a stream and of its groups.
    fn read(replies: &[RedisResult<Value>]) -> RedisResult<Self> {
        let Some(stream) = answer::<Facts>(&replies[0])? else {
            return Ok(Self::default());
        };
        Ok(Self::judge(&stream, our_group(&replies[1])?.as_ref()))
    }

    /// **Every reader of a lag goes through here.** Redis's `lag` is what it counts as read taken from what it counts as
    /// added. After a restart it has the count of reads from the last rewrite of its file, so that count is believed only as
    /// far as there can be unread entries: none when the group has been given the last one, and never more than the
    /// log has. The same bound holds where there is no group, or Redis can't tell its lag.
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

    /// Whether nothing is left to do: the group is there, and has acknowledged all that was ever appended.
    pub fn is_settled(&self) -> bool {
        self.delivered.is_some() && self.unwritten() == 0
    }
}

/// Where the group of a log stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupState {
    /// Entries delivered and not acknowledged.
    pub pending: u64,
    /// Id of the last entry that was delivered.
    pub delivered: EntryId,
}

/// Where the group of each of these logs stands; `None` where it is missing.
///
/// # Errors
///
/// When Redis doesn't answer, or one of the keys holds something else.
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

/// The claims in the newest entries of a log that hold one.
///
/// # Errors
///
/// When Redis doesn't answer.
pub async fn newest(redis: &Redis, key: &str) -> RedisResult<Vec<LoggedClaim>> {
    let mut command = redis::cmd("XREVRANGE");
    command.arg(key).arg("+").arg("-").arg("COUNT").arg(limits::NEWEST_ENTRIES);
    let entries: Vec<(String, Vec<Vec<u8>>)> = redis.query(&command).await?;
    let read = entries.into_iter().map(|(id, fields)| LogEntry::new(id, Some(fields)));
    Ok(read.filter_map(|entry| entry.claim.ok()).collect())
}

/// Which of these logs have entries behind these ids. Waits up to `patience` for the first of them.
///
/// # Errors
///
/// When Redis doesn't answer, or one of the keys holds something else.
pub async fn newer(
    redis: &Redis,
    logs: &[(String, EntryId)],
    patience: Duration,
) -> RedisResult<Vec<String>> {
    if logs.is_empty() {
        return Ok(Vec::new());
    }
    let mut command = redis::cmd("XREAD");
    command.arg("COUNT").arg(1);
    if !patience.is_zero() {
        command.arg("BLOCK").arg(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX));
    }
    command.arg("STREAMS");
    for (key, _) in logs {
        command.arg(key);
    }
    for (_, id) in logs {
        command.arg(id.to_string());
    }
    let found: Option<BTreeMap<String, Value>> = redis.query(&command).await?;
    Ok(found.into_iter().flatten().map(|(key, _)| key).collect())
}

impl FromStr for EntryId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('-').map(|(ms, sequence)| (ms.parse(), sequence.parse()));
        match parts {
            Some((Ok(ms), Ok(sequence))) => Ok(Self { ms, sequence }),
            _ => Err("an entry id is <ms>-<sequence>"),
        }
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.sequence)
    }
}

/// Fields that this version doesn't know are ignored: a newer one may have written them.
fn decode(id: &str, payload: &[Vec<u8>]) -> Result<LoggedClaim, &'static str> {
    fn field<T: FromStr>(payload: &[Vec<u8>], name: &str) -> Option<T> {
        let pair = payload.chunks_exact(2).find(|pair| pair[0] == name.as_bytes())?;
        std::str::from_utf8(&pair[1]).ok()?.parse().ok()
    }
    let claimed_ms = id.parse().ok().and_then(|id: EntryId| i64::try_from(id.ms).ok());
    let claimed_at = claimed_ms.and_then(DateTime::from_timestamp_millis);
    Ok(LoggedClaim {
        order_id: field(payload, "order").ok_or("`order` is not an order id")?,
        coupon_id: field(payload, "coupon").ok_or("`coupon` is not a coupon id")?,
        user_id: field(payload, "user").ok_or("`user` is not a user id")?,
        claimed_at: claimed_at.ok_or("the entry id carries no time")?,
    })
}

/// Names and values, as XINFO answers them.
type Facts = BTreeMap<String, Value>;

fn fact<T: redis::FromRedisValue>(facts: &Facts, name: &str) -> Option<T> {
    facts.get(name).and_then(|value| redis::from_redis_value_ref::<Option<T>>(value).ok()?)
}

/// The group among those that XINFO has named.
fn our_group(reply: &RedisResult<Value>) -> RedisResult<Option<Facts>> {
    let groups: Vec<Facts> = answer(reply)?.unwrap_or_default();
    let is_ours = |group: &Facts| fact::<String>(group, "name").as_deref() == Some(GROUP);
    Ok(groups.into_iter().find(is_ours))
}

fn fact_id(facts: &Facts, name: &str) -> Option<EntryId> {
    fact::<String>(facts, name)?.parse().ok()
}

/// What was answered; nothing where there is no such key.
fn answer<T: redis::FromRedisValue>(reply: &RedisResult<Value>) -> RedisResult<Option<T>> {
    match reply {
        Ok(value) => Ok(Some(redis::from_redis_value_ref(value)?)),
        Err(error) if is_missing_key(error) => Ok(None),
        Err(error) => Err(error.clone()),
    }
}

/// Whether a command found no group (or no stream) to work on.
pub fn is_missing_group(error: &RedisError) -> bool {
    error.code() == Some("NOGROUP")
}

fn is_missing_key(error: &RedisError) -> bool {
    error.to_string().contains("no such key")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(fields: &[&str]) -> LogEntry {
        let fields = fields.iter().map(|field| field.as_bytes().to_vec()).collect();
        LogEntry::new("1700000000123-4".into(), Some(fields))
    }

    /// As XINFO tells it: a log of so many entries, the last one added, and what the group was given and counts.
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
            // As it should be.
            (100, "5-2", Some(("5-2", 0, Some(0))), 0, 0),
            (100, "5-2", Some(("5-1", 3, Some(1))), 1, 3),
            // Redis has counted from its last rewrite on.
            (100, "5-2", Some(("5-2", 7, Some(1_500))), 0, 7),
            (100, "5-2", Some(("4-9", 0, Some(1_510))), 100, 0),
            (0, "5-2", Some(("4-9", 0, Some(1_500))), 0, 0),
            // Redis can't tell.
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

    #[test]
    fn unknown_fields_are_ignored() {
        let claim =
            entry(&["new", "x", "coupon", "1024", "user", "42", "order", "7"]).claim.unwrap();
        assert_eq!(claim.coupon_id.get(), 1024);
        assert_eq!(claim.user_id.get(), 42);
        assert_eq!(claim.order_id.get(), 7);
        assert_eq!(claim.claimed_at.timestamp_millis(), 1_700_000_000_123);
    }

    #[test]
    fn what_is_not_a_claim_is_undecodable() {
        for fields in [
            &["coupon", "1024", "user", "42"][..],
            &["coupon", "1024", "user", "42", "order", "-7"],
            &["coupon", "x", "user", "42", "order", "7"],
            &["coupon", "1024", "user", "9223372036854775808", "order", "7"],
            &["junk", "junk"],
        ] {
            assert!(entry(fields).claim.is_err(), "{fields:?}");
        }
        assert!(LogEntry::new("1-1".into(), None).is_lost());
    }
}
