//! The order log: one Redis Stream for each lane, read by the group `order-writers`.
//!
//! Accepted claims are appended by `lua/claim.lua`, in the same step that takes the stock. From here
//! the worker reads them. What this file promises:
//!
//! * An entry leaves the group's pending list only through [`OrderLog::acknowledge`].
//! * The log is trimmed only behind what every group has finished with.
//! * A consumer is removed only when it holds nothing.
//! * A vanished group is created again from the log's start, never from its end.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, Utc};
use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult, Value};

use super::ids::{CouponId, Lane, OrderId, UserId};
use super::keys::Keys;
use crate::base::limits;
use crate::kit::redis::Redis;
use crate::kit::script::Script;

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

/// What of the log hasn't been written yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwritten {
    /// Delivered to a worker, not acknowledged.
    pub pending: u64,
    /// Not delivered yet.
    pub unread: u64,
    /// Ever appended, trimmed ones included.
    pub appended: u64,
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
    key: String,
    lane: Lane,
    consumer: String,
    /// Blocks in Redis, so it has a connection of its own; opened when needed.
    reader: Option<MultiplexedConnection>,
    ensure_group: Script<1>,
    trim: Script<1>,
    remove_consumer: Script<1>,
}

/// Reply to XREADGROUP: for each stream its entries, an entry being an id and, unless the log has
/// lost it, its fields.
type ReadReply = Option<BTreeMap<String, Vec<(String, Option<Vec<Vec<u8>>>)>>>;

impl OrderLog {
    /// The log of `lane`, to be read as `consumer`. The name has to be unique for each process.
    pub fn new(redis: Redis, keys: &Keys, lane: Lane, consumer: String) -> Self {
        Self {
            redis,
            key: keys.log(lane),
            lane,
            consumer,
            reader: None,
            ensure_group: Script::new(include_str!("../../lua/ensure_group.lua")),
            trim: Script::new(include_str!("../../lua/trim_log.lua")),
            remove_consumer: Script::new(include_str!("../../lua/remove_consumer.lua")),
        }
    }

    /// Which lane it is.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// Up to `count` entries that nobody has been given yet; waits up to `patience` for the first.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer. Entries may have been delivered then: read
    /// [pending ones](Self::read_pending) next.
    pub async fn read_new(
        &mut self,
        count: usize,
        patience: Duration,
    ) -> RedisResult<Vec<LogEntry>> {
        let patience_ms =
            u64::try_from(patience.min(limits::LOG_BLOCK).as_millis()).unwrap_or(u64::MAX);
        let mut command = redis::cmd("XREADGROUP");
        command.arg("GROUP").arg(GROUP).arg(&self.consumer).arg("COUNT").arg(count);
        if patience_ms > 0 {
            command.arg("BLOCK").arg(patience_ms);
        }
        command.arg("STREAMS").arg(&self.key).arg(">");
        self.read(&command).await
    }

    /// Up to `count` entries that were delivered to this consumer and not acknowledged, with ids
    /// above `after` (`0` for the start).
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn read_pending(&mut self, count: usize, after: &str) -> RedisResult<Vec<LogEntry>> {
        let mut command = redis::cmd("XREADGROUP");
        command.arg("GROUP").arg(GROUP).arg(&self.consumer).arg("COUNT").arg(count);
        command.arg("STREAMS").arg(&self.key).arg(after);
        self.read(&command).await
    }

    async fn read(&mut self, command: &redis::Cmd) -> RedisResult<Vec<LogEntry>> {
        let mut connection = match self.reader.take() {
            Some(connection) => connection,
            None => self.redis.blocking_connection().await?,
        };
        let reply: ReadReply = command.query_async(&mut connection).await?;
        // Kept only after success: a reply that comes late must not answer the next question.
        self.reader = Some(connection);
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

    /// What hasn't been written yet. A log that doesn't exist has no backlog.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn unwritten(redis: &Redis, key: &str) -> RedisResult<Unwritten> {
        let stream: Facts = match redis.query(redis::cmd("XINFO").arg("STREAM").arg(key)).await {
            Err(error) if is_missing_key(&error) => return Ok(Unwritten::default()),
            reply => reply?,
        };
        let appended = fact(&stream, "entries-added").unwrap_or(0);
        let length = fact(&stream, "length").unwrap_or(0);
        let group = group(redis, key).await?;
        let of_group = |name| group.as_ref().and_then(|group| fact(group, name));
        // Where there is no group, or Redis can't tell its lag, the length is an upper bound.
        let unread = of_group("lag").unwrap_or(length);
        Ok(Unwritten { pending: of_group("pending").unwrap_or(0), unread, appended })
    }

    /// Id of the last entry that was delivered to anybody; `None` without log or group.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn last_delivered(redis: &Redis, key: &str) -> RedisResult<Option<String>> {
        let group = group(redis, key).await?;
        Ok(group.and_then(|group| fact(&group, "last-delivered-id")))
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

/// Fields that this version doesn't know are ignored: a newer one may have written them.
fn decode(id: &str, payload: &[Vec<u8>]) -> Result<LoggedClaim, &'static str> {
    fn field<T: FromStr>(payload: &[Vec<u8>], name: &str) -> Option<T> {
        let pair = payload.chunks_exact(2).find(|pair| pair[0] == name.as_bytes())?;
        std::str::from_utf8(&pair[1]).ok()?.parse().ok()
    }
    let claimed_ms = id.split_once('-').and_then(|(ms, _)| ms.parse().ok());
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

async fn group(redis: &Redis, key: &str) -> RedisResult<Option<Facts>> {
    let groups: Vec<Facts> = match redis.query(redis::cmd("XINFO").arg("GROUPS").arg(key)).await {
        Err(error) if is_missing_key(&error) => return Ok(None),
        reply => reply?,
    };
    Ok(groups.into_iter().find(|group| fact::<String>(group, "name").as_deref() == Some(GROUP)))
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
