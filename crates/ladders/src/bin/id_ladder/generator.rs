//! The ways to make an id.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, bail};
use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use flash_sale::base::clock::Clock;
use flash_sale::store::redis::Redis;
use sqlx::PgPool;
use tokio::sync::Mutex;
use uuid::{Builder, Uuid};

use crate::snowflake::{Snowflake, WhenSetBack};

/// 2022-01-01T00:00:00Z, where the seconds of an id begin.
const EPOCH_SECONDS: i64 = 1_640_995_200;
/// Numbers of a block or a segment.
pub const BLOCK: u32 = 1_000;

/// A kind of id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    AutoIncrement,
    UuidV4,
    UuidV7,
    Snowflake,
    SnowflakeThatWaits,
    Incr,
    Blocks,
    Segments,
    Script,
}

impl Kind {
    pub const ALL: [Self; 9] = [
        Self::AutoIncrement,
        Self::UuidV4,
        Self::UuidV7,
        Self::Snowflake,
        Self::SnowflakeThatWaits,
        Self::Incr,
        Self::Blocks,
        Self::Segments,
        Self::Script,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::AutoIncrement => "auto-increment",
            Self::UuidV4 => "UUIDv4",
            Self::UuidV7 => "UUIDv7",
            Self::Snowflake => "Snowflake",
            Self::SnowflakeThatWaits => "Snowflake that waits",
            Self::Incr => "Redis INCR, a key for each local day",
            Self::Blocks => "blocks of Redis INCRBY",
            Self::Segments => "segments of a table (Leaf)",
            Self::Script => "counter of a second, in the claim script (this service)",
        }
    }

    /// Size of an id.
    pub fn bytes(self) -> usize {
        if matches!(self, Self::UuidV4 | Self::UuidV7) {
            size_of::<Uuid>()
        } else {
            size_of::<i64>()
        }
    }
}

/// The surroundings of a server that makes ids.
#[derive(Clone)]
pub struct Server {
    pub pool: PgPool,
    pub redis: Redis,
    pub clock: Clock,
    /// Time zone of the machine, in hours before UTC.
    pub zone_hours: i64,
}

/// A server that makes ids of one kind.
pub struct Generator {
    kind: Kind,
    server: Server,
    snowflake: Snowflake,
    /// Day of the block, and its numbers that are left.
    block: Mutex<(NaiveDate, std::ops::Range<i64>)>,
    /// Numbers of the segment that are left.
    segment: Mutex<std::ops::Range<i64>>,
    round_trips: Arc<AtomicU64>,
}

impl Generator {
    pub fn new(kind: Kind, server: Server) -> Self {
        let when = if kind == Kind::Snowflake { WhenSetBack::GoOn } else { WhenSetBack::Wait };
        Self {
            kind,
            // Two servers that were set up alike have the same number.
            snowflake: Snowflake::new(1, when),
            block: Mutex::new((NaiveDate::default(), 0..0)),
            segment: Mutex::new(0..0),
            server,
            round_trips: Arc::default(),
        }
    }

    /// Calls of a store until now.
    pub fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }

    /// The next id.
    ///
    /// # Errors
    ///
    /// When the store is away, or the clock was set back and the generator waits for it.
    pub async fn next(&self) -> anyhow::Result<u128> {
        let now = self.server.clock.now();
        let number = match self.kind {
            Kind::UuidV4 => return Ok(Uuid::new_v4().as_u128()),
            Kind::UuidV7 => return Ok(v7(now).as_u128()),
            Kind::Snowflake | Kind::SnowflakeThatWaits => match self.snowflake.next(now) {
                Some(id) => id,
                None => bail!("the clock was set back: no id before it has caught up"),
            },
            Kind::AutoIncrement => self.auto_increment().await?,
            Kind::Incr => self.incr(now).await?,
            Kind::Blocks => self.block(now).await?,
            Kind::Segments => self.segment().await?,
            Kind::Script => self.script(now).await?,
        };
        Ok(u128::from(number.cast_unsigned()))
    }

    fn count_round_trip(&self) {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
    }

    async fn auto_increment(&self) -> anyhow::Result<i64> {
        self.count_round_trip();
        let insert = "INSERT INTO ladder.numbered DEFAULT VALUES RETURNING id";
        Ok(sqlx::query_scalar(insert).fetch_one(&self.server.pool).await?)
    }

    /// The tutorial's worker: seconds and a counter of the day, where the day is that of the machine's time zone.
    async fn incr(&self, now: DateTime<Utc>) -> anyhow::Result<i64> {
        self.count_round_trip();
        let local = now + TimeDelta::hours(self.server.zone_hours);
        let key = format!("icr:order:{}", local.format("%Y:%m:%d"));
        let mut command = redis::cmd("INCR");
        let count: i64 = self.server.redis.query(command.arg(key)).await?;
        Ok((now.timestamp() - EPOCH_SECONDS) << 32 | count)
    }

    /// The same numbers, a thousand at a time; the day is that of UTC, and a block counts only for its day.
    async fn block(&self, now: DateTime<Utc>) -> anyhow::Result<i64> {
        let mut block = self.block.lock().await;
        if block.0 != now.date_naive() || block.1.is_empty() {
            self.count_round_trip();
            let key = format!("ladder:ids:{}", now.format("%Y:%m:%d"));
            let mut command = redis::cmd("INCRBY");
            let last: i64 = self.server.redis.query(command.arg(key).arg(BLOCK)).await?;
            *block = (now.date_naive(), last - i64::from(BLOCK) + 1..last + 1);
        }
        let number = block.1.next().ok_or_else(|| anyhow::anyhow!("a block has numbers"))?;
        Ok((now.timestamp() - EPOCH_SECONDS) << 32 | number)
    }

    /// The function of the claim script, by the clock of this program in place of Redis's.
    async fn script(&self, now: DateTime<Utc>) -> anyhow::Result<i64> {
        self.count_round_trip();
        let mut command = redis::cmd("EVAL");
        command.arg(next_id()?).arg(1).arg("ladder:lane").arg(now.timestamp() - EPOCH_SECONDS);
        let id: String = self.server.redis.query(&command).await?;
        Ok(id.parse()?)
    }

    async fn segment(&self) -> anyhow::Result<i64> {
        let mut segment = self.segment.lock().await;
        if segment.is_empty() {
            self.count_round_trip();
            let take = "UPDATE ladder.segments SET last = last + $1 RETURNING last";
            let last: i64 = sqlx::query_scalar(take)
                .bind(i64::from(BLOCK))
                .fetch_one(&self.server.pool)
                .await?;
            *segment = last - i64::from(BLOCK) + 1..last + 1;
        }
        segment.next().ok_or_else(|| anyhow::anyhow!("a segment has numbers"))
    }
}

/// A script that makes one id, with the function of the claim script.
fn next_id() -> anyhow::Result<String> {
    let claim = include_str!("../../../../../lua/claim.lua");
    let begin = claim.find("local function next_ids(").context("the function is there")?;
    let length = claim[begin..].find("\nend\n").context("it has an end")?;
    let function = &claim[begin..begin + length + "\nend\n".len()];
    let call = "
        local was = redis.call('HMGET', KEYS[1], 'second', 'used')
        local second, used, id = next_ids(tonumber(ARGV[1]), tonumber(was[1] or 0), tonumber(was[2] or 0), 0, 1, 1)
        redis.call('HSET', KEYS[1], 'second', string.format('%d', second), 'used', string.format('%d', used))
        return id(0)";
    Ok([function, call].concat())
}

/// Milliseconds, and random bytes.
pub fn v7(now: DateTime<Utc>) -> Uuid {
    // The other bytes of a UUIDv4 hold its version and its variant.
    let random = *Uuid::new_v4().as_bytes();
    let [a, b, c, d, e, f, _, _, _, g, h, i, j, ..] = random;
    let ms = now.timestamp_millis().cast_unsigned();
    Builder::from_unix_timestamp_millis(ms, &[a, b, c, d, e, f, g, h, i, j]).into_uuid()
}

/// Sales between two orders of one day, as their ids tell a competitor who placed both.
pub fn told(kind: Kind, first: u128, second: u128) -> String {
    let sequence = u128::from(u32::MAX);
    match kind {
        Kind::UuidV4 => "nothing".to_owned(),
        Kind::UuidV7 | Kind::Snowflake | Kind::SnowflakeThatWaits => "the times".to_owned(),
        Kind::AutoIncrement | Kind::Segments => (second - first).to_string(),
        Kind::Incr | Kind::Blocks => ((second & sequence) - (first & sequence)).to_string(),
        Kind::Script => "the times, and the sales within a second".to_owned(),
    }
}
