//! The ways to make an id.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::bail;
use chrono::{DateTime, TimeDelta, Utc};
use flash_sale::base::clock::Clock;
use flash_sale::kit::id::{Ceilings, IdGenerator};
use flash_sale::kit::redis::{Link, Redis};
use sqlx::PgPool;
use tokio::sync::{Mutex, OnceCell};
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
}

impl Kind {
    pub const ALL: [Self; 8] = [
        Self::AutoIncrement,
        Self::UuidV4,
        Self::UuidV7,
        Self::Snowflake,
        Self::SnowflakeThatWaits,
        Self::Incr,
        Self::Blocks,
        Self::Segments,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::AutoIncrement => "auto-increment",
            Self::UuidV4 => "UUIDv4",
            Self::UuidV7 => "UUIDv7",
            Self::Snowflake => "Snowflake",
            Self::SnowflakeThatWaits => "Snowflake that waits",
            Self::Incr => "Redis INCR, a key for each local day",
            Self::Blocks => "blocks (this service)",
            Self::Segments => "segments of a table (Leaf)",
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
    blocks: IdGenerator,
    /// Connection over which blocks come.
    link: OnceCell<Arc<Link>>,
    /// Numbers of the segment that are left.
    segment: Mutex<std::ops::Range<i64>>,
    round_trips: Arc<AtomicU64>,
}

impl Generator {
    pub fn new(kind: Kind, server: Server) -> Self {
        let when = if kind == Kind::Snowflake { WhenSetBack::GoOn } else { WhenSetBack::Wait };
        let ceilings = Ceilings::new(server.pool.clone(), Duration::from_secs(10));
        let blocks =
            IdGenerator::new("ladder:ids".to_owned(), BLOCK, server.clock.clone(), ceilings);
        Self {
            kind,
            // Two servers that were set up alike have the same number.
            snowflake: Snowflake::new(1, when),
            blocks,
            link: OnceCell::new(),
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
            Kind::Blocks => self.block().await?,
            Kind::Segments => self.segment().await?,
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

    async fn block(&self) -> anyhow::Result<i64> {
        let link = self.link.get_or_try_init(|| self.server.redis.link()).await?;
        Ok(self.blocks.next(link).await?)
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
    }
}
