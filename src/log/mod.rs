//! The order log: a Redis Stream for each lane, read by the owner of the lane for the group `order-writers`.
//!
//! `lua/claim.lua` appends the accepted claims of a call as one entry, in the same step that takes the stock, and
//! numbers the orders that the lane has accepted. The worker reads the entries here. This file guarantees:
//!
//! * An order counts as written when its entry is acknowledged, in one step.
//! * An entry leaves the group's pending list only through `OrderLog::acknowledge`, or through
//!   `OrderLog::take_over` if the log has lost it.
//! * The log is trimmed only behind the entries that every group has finished with.
//! * A group that has vanished is created again at the log's start, never at its end.

// The bound on accepted claims that wait to be written.
pub mod backlog;

// Gauges of the log.
pub mod numbers;

// Lengths and positions of a log and its group.
mod state;

// Entries, decoded once.
mod entry;

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{RedisError, RedisResult, Value};

use crate::base::limits;
use crate::store::ids::Lane;
use crate::store::keys::Keys;
use crate::store::redis::Redis;
use crate::store::script::Script;
pub use entry::{Entry, EntryId, LoggedClaim, Place, Unreadable, Why};
pub use state::{CONSUMER, GROUP, LogState, Progress, progress};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TidiedUp {
    pub trimmed: u64,
    /// Orders that were accepted and not written, although no entry is left; negative if more were written than
    /// accepted. The count of written orders has been corrected by them.
    pub unaccounted: i64,
}

pub struct OrderLog {
    redis: Redis,
    /// Connection for reading entries, whose waits and large replies hold up no claim.
    reader: Redis,
    key: String,
    /// Key of the lane's counts.
    lane_key: String,
    lane: Lane,
    acknowledge: Script<2>,
    ensure_group: Script<2>,
    trim: Script<2>,
}

/// Entries that Redis has delivered, and what the same server said about the lane right afterwards.
#[derive(Debug)]
pub struct Delivered {
    pub entries: Vec<Entry>,
    pub epoch: Option<i64>,
    /// The order that was acknowledged last, and its coupon.
    pub last: Option<(i64, i64)>,
}

/// Entries that were delivered and not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    pub entries: usize,
    /// Whether some are under another name than [`CONSUMER`].
    pub of_others: bool,
}

/// Reply to XREADGROUP: for each stream its entries, an entry being an id and, unless the log has
/// lost it, its fields.
type ReadReply = Option<BTreeMap<String, Entries>>;

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
    pub fn new(redis: Redis, keys: &Keys, lane: Lane) -> Self {
        Self {
            reader: redis.another(),
            redis,
            key: keys.log(lane),
            lane_key: keys.lane(lane),
            lane,
            acknowledge: Script::new(include_str!("../../lua/acknowledge.lua")),
            ensure_group: Script::new(include_str!("../../lua/ensure_group.lua")),
            trim: Script::new(include_str!("../../lua/trim_log.lua")),
        }
    }

    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// Up to `count` entries that have not been delivered yet. Waits up to `patience` for the first one.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer. Entries may have been delivered all the same: read [pending ones](Self::read_pending)
    /// next.
    pub async fn read_new(&self, count: usize, patience: Duration) -> RedisResult<Delivered> {
        // The wait ends before the connection times out.
        self.read(count, ">", patience.min(self.reader.timeout() / 2)).await
    }

    /// Up to `count` entries that were delivered and not acknowledged, with ids above `after`.
    pub async fn read_pending(&self, count: usize, after: EntryId) -> RedisResult<Delivered> {
        self.read(count, &after.to_string(), Duration::ZERO).await
    }

    /// Reads the lane's hash after the entries, on the same connection: on another one, another server may answer.
    async fn read(&self, count: usize, after: &str, patience: Duration) -> RedisResult<Delivered> {
        let mut commands = redis::pipe();
        let command = commands.cmd("XREADGROUP");
        command.arg("GROUP").arg(GROUP).arg(CONSUMER).arg("COUNT").arg(count);
        if !patience.is_zero() {
            command.arg("BLOCK").arg(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX));
        }
        command.arg("STREAMS").arg(&self.key).arg(after);
        commands.cmd("HMGET").arg(&self.lane_key).arg("epoch").arg("last").arg("last_of");
        let mut replies = self.reader.query_all::<Value>(&commands).await?.into_iter();
        let mut next = || replies.next().unwrap_or(Value::Nil);
        let entries: ReadReply = redis::from_redis_value(next())?;
        let entries = entries.into_iter().flatten().flat_map(|(_, entries)| entries.0).collect();
        let (epoch, last, of): (_, Option<i64>, Option<i64>) = redis::from_redis_value(next())?;
        Ok(Delivered { entries, epoch, last: last.zip(of) })
    }

    /// What was delivered and not acknowledged.
    ///
    /// # Errors
    ///
    /// Also when there is no group.
    pub async fn pending(&self) -> RedisResult<Pending> {
        let mut command = redis::cmd("XPENDING");
        let (entries, _, _, consumers): (_, Value, Value, Option<Vec<(String, Value)>>) =
            self.redis.query(command.arg(&self.key).arg(GROUP)).await?;
        let of_others = consumers.into_iter().flatten().any(|(name, _)| name != CONSUMER);
        Ok(Pending { entries, of_others })
    }

    /// Takes over all pending entries of other consumers, because no process reads under another name. Returns the
    /// entries that the log has lost; they are no longer pending.
    pub async fn take_over(&self) -> RedisResult<Vec<Entry>> {
        let mut from = "0-0".to_owned();
        let mut lost = Vec::new();
        loop {
            let mut command = redis::cmd("XAUTOCLAIM");
            command.arg(&self.key).arg(GROUP).arg(CONSUMER).arg(0).arg(&from);
            command.arg("COUNT").arg(limits::ENTRIES_AT_A_TIME).arg("JUSTID");
            let (next, _, gone): (String, Value, Vec<String>) = self.redis.query(&command).await?;
            lost.extend(gone.iter().filter_map(|id| Some(Entry::decode(id.parse().ok()?, None))));
            if next == "0-0" {
                return Ok(lost);
            }
            from = next;
        }
    }

    /// Takes entries off the pending list, each with the number of its orders that the lane has counted. Only for
    /// entries of which every position is in Postgres. The lane notes `last`, a claim whose row Postgres has. False if
    /// the lane has another epoch: no further entry is acknowledged then.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer. The entries will be read again then, and change nothing.
    pub async fn acknowledge(
        &self,
        epoch: i64,
        entries: &[(EntryId, u64)],
        last: Option<&LoggedClaim>,
    ) -> RedisResult<bool> {
        let [order, coupon] = match last {
            Some(claim) => [claim.order_id.to_string(), claim.coupon_id.to_string()],
            None => [String::new(), String::new()],
        };
        for some in entries.chunks(limits::ACKNOWLEDGED_AT_A_TIME) {
            let link = self.redis.link().await?;
            let mut arguments =
                vec![GROUP.to_owned(), epoch.to_string(), order.clone(), coupon.clone()];
            arguments
                .extend(some.iter().flat_map(|(id, orders)| [id.to_string(), orders.to_string()]));
            let orders: i64 =
                self.acknowledge.run(&link, [&self.key, &self.lane_key], arguments).await?;
            if orders < 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Creates the group if it isn't there, at the log's start: an acknowledged entry is in Postgres and is recognised
    /// there, any other entry would be lost.
    ///
    /// Returns false, and creates nothing, if Redis has lost a log to which orders were appended.
    pub async fn ensure_group(&self) -> RedisResult<bool> {
        let link = self.redis.link().await?;
        let keys = [&*self.key, &*self.lane_key];
        let reply: String = self.ensure_group.run(&link, keys, GROUP).await?;
        Ok(reply != "LOST")
    }

    /// Drops entries that every group has finished with. If no entry is left for a worker, all orders that were
    /// accepted have to be written; the count is corrected by those that aren't.
    pub async fn trim(&self) -> RedisResult<TidiedUp> {
        let link = self.redis.link().await?;
        let (trimmed, unaccounted) =
            self.trim.run(&link, [&self.key, &self.lane_key], &[GROUP][..]).await?;
        Ok(TidiedUp { trimmed, unaccounted })
    }
}

/// Whether a command failed because there is no group (or no stream).
pub fn is_missing_group(error: &RedisError) -> bool {
    error.code() == Some("NOGROUP")
}
