//! The order log: a Redis Stream for each lane, read by the group `order-writers`.
//!
//! `lua/claim.lua` appends the accepted claims of a call as one entry, in the same step that takes the stock, and
//! numbers the orders that the lane has promised. From here the worker reads them. A lane has a second log as long as
//! an older version may be running beside this one (`layout.rs`). Promises of this file:
//!
//! * An order counts as written with the acknowledgement of its entry, in one step.
//! * An entry leaves the group's pending list only through [`OrderLog::acknowledge`].
//! * The log is trimmed only behind the entries that every group has finished with.
//! * A consumer is removed only without pending entries.
//! * A vanished group is created again from the log's start, never from its end.

// The bound on accepted claims that wait to be written.
pub mod backlog;

// Gauges of the log.
pub mod numbers;

// Lengths and positions of a log and its group.
mod state;

// Entries, decoded once.
mod entry;

// The layout that this process appends in.
pub mod layout;

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{RedisError, RedisResult, Value};

use crate::base::limits;
use crate::kit::redis::Redis;
use crate::kit::script::Script;
use crate::sale::ids::Lane;
use crate::sale::keys::{Keys, LogId, LogLayout};
pub use entry::{Entry, EntryId, LoggedClaim, Place, Unreadable, Why};
use state::{Facts, fact};
pub use state::{GROUP, GroupState, LogState, Progress, groups, progress};

/// Result of one step of taking over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeOver {
    /// Entries taken over.
    pub entries: Vec<EntryId>,
    /// Entries that the log has lost while they were pending, and their orders with them. Redis has taken them off the
    /// pending list, and names them only this once.
    pub lost: Vec<EntryId>,
    /// Start of the next step; `None` at the end.
    pub next: Option<String>,
}

/// Entries of a consumer. While these stay as they are, the consumer neither finishes an entry nor looks at one
/// again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Name of the consumer.
    pub consumer: String,
    /// Entries.
    pub entries: u64,
    /// The first of them.
    pub first: String,
    /// Number of its deliveries.
    pub deliveries: u64,
}

/// Parts that [`OrderLog::ensure_group`] has created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Created {
    /// The group.
    pub group: bool,
    /// The log itself, too.
    pub log: bool,
}

/// Result of tidying up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TidiedUp {
    /// Entries removed.
    pub trimmed: u64,
    /// Orders that were promised and not written, although no entry is left. Negative if more were written than
    /// promised. The count of written orders has been corrected by them.
    pub unaccounted: i64,
}

/// A log, seen by one consumer.
pub struct OrderLog {
    redis: Redis,
    /// Connection for reading entries: their large replies hold up no claim here.
    reader: Redis,
    key: String,
    /// Key of the lane's counts.
    lane_key: String,
    id: LogId,
    consumer: String,
    acknowledge: Script<2>,
    ensure_group: Script<2>,
    trim: Script<2>,
    remove_consumer: Script<1>,
}

/// Entry id, consumer, idle ms, deliveries.
type Pending = (String, String, u64, u64);

/// Reply to XREADGROUP: for each stream its entries, an entry being an id and, unless the log has
/// lost it, its fields.
type ReadReply = Option<BTreeMap<String, Entries>>;

/// Entries as a reply brings them.
pub struct Entries(pub Vec<Entry>);

impl redis::FromRedisValue for Entries {
    fn from_redis_value(value: Value) -> Result<Self, redis::ParsingError> {
        let entries: Vec<(String, Option<Vec<Vec<u8>>>)> = redis::from_redis_value(value)?;
        let read = entries
            .into_iter()
            .filter_map(|(id, fields)| Some(Entry::decode(id.parse().ok()?, fields)));
        Ok(Self(read.collect()))
    }
}

impl OrderLog {
    /// This log, to be read as `consumer`, whose name has to be unique for each writer.
    pub fn new(redis: Redis, keys: &Keys, id: LogId, consumer: String) -> Self {
        Self {
            reader: redis.clone(),
            redis,
            key: keys.log(id),
            lane_key: keys.lane(id.lane),
            id,
            consumer,
            acknowledge: Script::new(include_str!("../../../lua/acknowledge.lua")),
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

    /// The lane of this log.
    pub fn lane(&self) -> Lane {
        self.id.lane
    }

    /// Which log it is.
    pub fn id(&self) -> LogId {
        self.id
    }

    /// Name of its key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Name of this consumer.
    pub fn consumer(&self) -> &str {
        &self.consumer
    }

    /// Up to `count` entries that no consumer has been given yet. Never waits for one.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer. Entries may have been delivered then: read
    /// [pending ones](Self::read_pending) next.
    pub async fn read_new(&self, count: usize) -> RedisResult<Vec<Entry>> {
        self.read(count, ">").await
    }

    /// Up to `count` entries that were delivered to this consumer and not acknowledged, with ids above `after`.
    pub async fn read_pending(&self, count: usize, after: EntryId) -> RedisResult<Vec<Entry>> {
        self.read(count, &after.to_string()).await
    }

    async fn read(&self, count: usize, after: &str) -> RedisResult<Vec<Entry>> {
        let mut command = redis::cmd("XREADGROUP");
        command.arg("GROUP").arg(GROUP).arg(&self.consumer).arg("COUNT").arg(count);
        command.arg("STREAMS").arg(&self.key).arg(after);
        let reply: ReadReply = self.reader.query(&command).await?;
        Ok(reply.into_iter().flatten().flat_map(|(_, entries)| entries.0).collect())
    }

    /// Epoch of the lane, as Redis has it.
    pub async fn epoch(&self) -> RedisResult<Option<i64>> {
        self.redis.query(redis::cmd("HGET").arg(&self.lane_key).arg("epoch")).await
    }

    /// Takes entries off the pending list, each with the number of its orders that the lane has counted. Only for
    /// entries of which every position is in Postgres. The lane notes `last`, a claim whose row Postgres has.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer. These entries will be read again then, and change nothing.
    pub async fn acknowledge(
        &self,
        entries: &[(EntryId, u64)],
        last: Option<&LoggedClaim>,
    ) -> RedisResult<()> {
        let [order, coupon] = match last {
            Some(claim) => [claim.order_id.to_string(), claim.coupon_id.to_string()],
            None => [String::new(), String::new()],
        };
        for some in entries.chunks(limits::ACKNOWLEDGED_AT_A_TIME) {
            let link = self.redis.link().await?;
            let mut arguments = vec![GROUP.to_owned(), order.clone(), coupon.clone()];
            arguments
                .extend(some.iter().flat_map(|(id, orders)| [id.to_string(), orders.to_string()]));
            let _orders: u64 =
                self.acknowledge.run(&link, [&self.key, &self.lane_key], arguments).await?;
        }
        Ok(())
    }

    /// Says which orders of the lane an entry held that is no longer in the log, as far as its neighbours tell.
    pub async fn numbers_lost(&self, entry: EntryId) -> RedisResult<String> {
        let mut commands = redis::pipe();
        let beside = format!("({entry}");
        commands.cmd("XREVRANGE").arg(&self.key).arg(&beside).arg("-").arg("COUNT").arg(1);
        commands.cmd("XRANGE").arg(&self.key).arg(&beside).arg("+").arg("COUNT").arg(1);
        let neighbours: Vec<Entries> = self.redis.query_all(&commands).await?;
        let promised: Option<u64> =
            self.redis.query(redis::cmd("HGET").arg(&self.lane_key).arg("promised")).await?;
        let neighbour = |of: usize| neighbours.get(of).and_then(|entries| entries.0.first());
        let from = neighbour(0).and_then(|entry| Some(entry.first? + entry.counted()));
        let behind = neighbour(1).and_then(|entry| entry.first);
        let to = behind.or(promised.map(|promised| promised + 1));
        Ok(match (from, to) {
            (Some(from), Some(to)) if from < to => {
                format!("its orders are among the numbers {from} to {} of the lane", to - 1)
            }
            (None, Some(to)) => format!("its orders are among the numbers below {to} of the lane"),
            _ => "its neighbours don't tell its orders".to_owned(),
        })
    }

    /// Takes over up to `count` entries that have been held for `idle` without being acknowledged; they become this
    /// consumer's pending entries. Begins at `from`, `0-0` for the start.
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
        let (next, entries, lost): (String, Vec<String>, Vec<String>) =
            self.redis.query(&command).await?;
        let next = Some(next).filter(|next| next != "0-0");
        Ok(TakeOver { entries: ids(&entries), lost: ids(&lost), next })
    }

    /// The entries of every other consumer.
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

    /// Takes over up to `count` entries of this consumer, however short its idle time seems to be.
    pub async fn take_over_from(&self, consumer: &str, count: usize) -> RedisResult<TakeOver> {
        let mut command = redis::cmd("XPENDING");
        command.arg(&self.key).arg(GROUP).arg("-").arg("+").arg(count).arg(consumer);
        let held: Vec<Pending> = self.redis.query(&command).await?;
        let mut commands = redis::pipe();
        for (id, ..) in &held {
            // One by one, because XAUTOCLAIM names entries that the log has lost, and XCLAIM drops them silently.
            commands.cmd("XAUTOCLAIM").arg(&self.key).arg(GROUP).arg(&self.consumer);
            commands.arg(0).arg(id).arg("COUNT").arg(1).arg("JUSTID");
        }
        let mut step = TakeOver { entries: Vec::new(), lost: Vec::new(), next: None };
        if !held.is_empty() {
            let replies: Vec<(String, Vec<String>, Vec<String>)> =
                self.redis.query_all(&commands).await?;
            for (_, entries, lost) in replies {
                step.entries.extend(ids(&entries));
                step.lost.extend(ids(&lost));
            }
        }
        Ok(step)
    }

    /// Creates the group if it isn't there, at the log's start: an acknowledged entry is in Postgres and is
    /// recognised there, any other entry would be lost.
    ///
    /// Returns `None`, and creates nothing, if Redis has lost the log with orders that were promised.
    pub async fn ensure_group(&self) -> RedisResult<Option<Created>> {
        // The lane counts the orders of its calls.
        let may_begin_anew = self.id.layout == LogLayout::Claims;
        self.create(may_begin_anew).await
    }

    /// The same for a log that may have been lost: a recovery has found its orders elsewhere.
    pub async fn begin_anew(&self) -> RedisResult<()> {
        self.create(true).await.map(drop)
    }

    async fn create(&self, may_begin_anew: bool) -> RedisResult<Option<Created>> {
        let link = self.redis.link().await?;
        let keys = [&*self.key, &*self.lane_key];
        let reply: String =
            self.ensure_group.run(&link, keys, (GROUP, i32::from(may_begin_anew))).await?;
        let created = Created { group: reply != "PRESENT", log: reply == "CREATED_LOG" };
        Ok(Some(created).filter(|_| reply != "LOST"))
    }

    /// The state of this log.
    pub async fn state(&self) -> RedisResult<LogState> {
        // The keys of this log are known here.
        LogState::of_keys(&self.redis, self.id.layout, &self.key, &self.lane_key).await
    }

    /// Drops entries that every group has finished with. If no entry is left for a worker, all orders that were
    /// promised have to be written; the count is corrected by those that aren't.
    pub async fn trim(&self) -> RedisResult<TidiedUp> {
        let link = self.redis.link().await?;
        let counted_group = match self.id.layout {
            LogLayout::Claims => "",
            LogLayout::Calls => GROUP,
        };
        let (trimmed, unaccounted) =
            self.trim.run(&link, [&self.key, &self.lane_key], &[counted_group][..]).await?;
        Ok(TidiedUp { trimmed, unaccounted })
    }

    /// Removes this consumer, unless it still holds entries; other workers take those over.
    pub async fn leave(&self) -> RedisResult<()> {
        self.remove(&self.consumer).await
    }

    /// Removes consumers without entries that have been idle for `idle`: those of processes that died.
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

    /// Removes a consumer. The script checks for pending entries, because XGROUP DELCONSUMER doesn't.
    async fn remove(&self, consumer: &str) -> RedisResult<()> {
        let link = self.redis.link().await?;
        let _held: u64 =
            self.remove_consumer.run(&link, [&self.key], &[GROUP, consumer][..]).await?;
        Ok(())
    }
}

/// The logs among these with entries behind these ids. Waits up to `patience` for the first one.
///
/// # Errors
///
/// When Redis doesn't answer, or one of the keys has another type.
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

/// Entry ids of a reply.
fn ids(told: &[String]) -> Vec<EntryId> {
    told.iter().filter_map(|id| id.parse().ok()).collect()
}

/// Whether a command found no group (or no stream) to work on.
pub fn is_missing_group(error: &RedisError) -> bool {
    error.code() == Some("NOGROUP")
}
