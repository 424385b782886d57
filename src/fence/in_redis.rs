//! What Redis knows of the lanes, read in one round trip.

use chrono::{DateTime, Utc};
use redis::{InfoDict, RedisResult, Value, from_redis_value};

use super::reason::ClosureReason;
use super::table::StoredLane;
use crate::store::Stores;
use crate::store::ids::Lane;
use crate::store::keys::Keys;
use crate::store::redis::{Redis, is_data_error};

/// A lane as Redis has it. If it is missing or can't be read, the epoch is 0, which no lane has.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub epoch: i64,
    /// `open`, `recovering`, or `lost`: a worker has missed its log.
    pub state: String,
    /// Whether the lane was opened for this server.
    pub is_approved: bool,
    /// Orders ever accepted.
    pub accepted: i64,
    /// Orders of acknowledged entries.
    pub written: i64,
    /// False if the log is missing although orders were accepted, or its key has another type.
    pub has_log: bool,
    /// The installation that the lane belongs to.
    pub installation: Option<String>,
    /// The incarnation of its Postgres.
    pub postgres_run: Option<String>,
    /// The order that was acknowledged last, and its coupon; 0 for none.
    pub last: (i64, i64),
    /// The sale that was opened last, and its load; 0 for none.
    pub sale: (i64, String),
}

const FIELDS: [&str; 11] = [
    "epoch",
    "state",
    "replid",
    "accepted",
    "written",
    "installation",
    "postgres",
    "last",
    "last_of",
    "sale",
    "sale_load",
];

impl Seen {
    fn of(fields: Vec<Option<String>>, log: &str, replid: &str) -> Self {
        let text = |at: usize| fields.get(at).cloned().flatten();
        let number = |at: usize| text(at).and_then(|text| text.parse().ok()).unwrap_or(0);
        let accepted = number(3);
        Self {
            epoch: number(0),
            state: text(1).unwrap_or_default(),
            is_approved: text(2).as_deref() == Some(replid),
            accepted,
            written: number(4),
            has_log: log == "stream" || (log == "none" && accepted == 0),
            installation: text(5),
            postgres_run: text(6),
            last: (number(7), number(8)),
            sale: (number(9), text(10).unwrap_or_default()),
        }
    }

    /// Whether Redis takes claims under this epoch.
    pub fn is_open(&self, epoch: i64) -> bool {
        (self.epoch, self.state.as_str(), self.is_approved) == (epoch, "open", true)
    }

    /// The reason to close this lane, which is open in Postgres, if there is one. A newer epoch is none: it means that
    /// Postgres went back in time (`recovery/apart.rs`).
    pub fn fault(&self, stored: &StoredLane) -> Option<ClosureReason> {
        Some(match self {
            Self { epoch: 0, .. } => ClosureReason::DataLost,
            Self { is_approved: false, .. } => ClosureReason::OtherReplicationId,
            Self { epoch, .. } if *epoch < stored.epoch => ClosureReason::OlderEpoch,
            Self { state, has_log, .. } if state == "lost" || !has_log => ClosureReason::LogLost,
            // Postgres has opened the lane, and the process died before it told Redis.
            Self { state, .. } if state != "open" => ClosureReason::CutOff,
            _ => return None,
        })
    }
}

/// Reads these lanes of a server. Returns the server's time, too.
///
/// # Errors
///
/// When Redis doesn't answer.
pub async fn read_lanes(
    redis: &Redis,
    keys: &Keys,
    lanes: &[Lane],
) -> RedisResult<(DateTime<Utc>, Vec<(Lane, Seen)>)> {
    let mut commands = redis::pipe();
    commands.cmd("TIME").cmd("INFO").arg("replication");
    for lane in lanes {
        commands.cmd("HMGET").arg(keys.lane(*lane)).arg(&FIELDS);
        commands.cmd("TYPE").arg(keys.log(*lane));
    }
    let mut replies = redis.query_each::<Value>(&commands).await?.into_iter();
    let mut next = || replies.next().unwrap_or(Ok(Value::Nil));
    let (seconds, micros): (i64, u32) = from_redis_value(next()?)?;
    let info: InfoDict = from_redis_value(next()?)?;
    let replid: String = info.get("master_replid").unwrap_or_default();
    let mut seen = Vec::with_capacity(lanes.len());
    for lane in lanes {
        let fields = match next() {
            // What can't be read counts as lost.
            Err(error) if is_data_error(&error) => Vec::new(),
            fields => from_redis_value(fields?)?,
        };
        let log: String = from_redis_value(next()?)?;
        seen.push((*lane, Seen::of(fields, &log, &replid)));
    }
    let now = DateTime::from_timestamp(seconds, micros * 1_000).unwrap_or_default();
    Ok((now, seen))
}

/// Reads one lane.
///
/// # Errors
///
/// When Redis doesn't answer.
pub async fn read_lane(stores: &Stores, lane: Lane) -> RedisResult<Seen> {
    let (_, seen) = read_lanes(stores.redis(lane), &stores.keys, &[lane]).await?;
    Ok(seen.into_iter().next().map(|(_, seen)| seen).unwrap_or_default())
}
