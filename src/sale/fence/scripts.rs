//! The scripts that begin, watch, close and open lanes.

use chrono::{DateTime, Utc};
use redis::RedisResult;

use super::table::NotedBeat;
use crate::kit::redis::{Link, Origin, is_data_error};
use crate::kit::script::Script;
use crate::sale::Failure;
use crate::sale::ids::Lane;
use crate::sale::installation::Identity;
use crate::sale::keys::{Keys, LogId, LogLayout};

/// State of a lane in Redis, compared with the noted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// The lane is as it was noted, and has promised so many orders.
    Confirmed {
        /// Orders that were ever promised.
        promised: i64,
        /// Time of Redis at this beat, if all of them are written.
        settled_at: Option<DateTime<Utc>>,
    },
    /// Redis has no such lane.
    Missing,
    /// The lane has this epoch in Redis, which isn't the noted one.
    Epoch(i64),
    /// The lane is recovering.
    Closed,
    /// Orders were promised in the lane, and their log isn't there, or is noted as lost; or a log is a key of another type.
    Logless,
    /// The lane has this beat, which isn't the noted one.
    Behind(i64),
}

/// The scripts.
pub struct FenceScripts {
    keys: Keys,
    begin: Script<1>,
    beat: Script<3>,
    fence: Script<5>,
    open: Script<1>,
}

impl FenceScripts {
    /// The scripts for lanes under these names.
    pub fn new(keys: Keys) -> Self {
        Self {
            keys,
            begin: Script::new(include_str!("../../../lua/begin_lane.lua")),
            beat: Script::new(include_str!("../../../lua/beat.lua")),
            fence: Script::new(include_str!("../../../lua/fence.lua")),
            open: Script::new(include_str!("../../../lua/open_lane.lua")),
        }
    }

    /// Begins a lane that Redis has never had. Returns the epoch that it has.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer, or has the lane of another installation.
    pub async fn begin(
        &self,
        link: &Link,
        lane: Lane,
        epoch: i64,
        identity: &Identity,
    ) -> Result<i64, Failure> {
        let arguments = (epoch, &identity.installation, life(identity));
        let found: i64 = self.begin.run(link, [&self.keys.lane(lane)], arguments).await?;
        if found == 0 { Err(Failure::OtherInstallation(lane)) } else { Ok(found) }
    }

    /// Compares the lane with what was noted, and raises its beat.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer; the beat may have been raised.
    pub async fn beat(&self, link: &Link, epoch: i64, noted: &NotedBeat) -> Result<Beat, Failure> {
        let [calls, claims] = self.logs(noted.lane);
        let keys = [&*self.keys.lane(noted.lane), &*calls, &*claims];
        let (code, number, settled_ms): (String, i64, i64) =
            self.beat.run(link, keys, [epoch, noted.beat].as_slice()).await?;
        match code.as_str() {
            "BEAT" => {
                let settled_at = DateTime::from_timestamp_millis(settled_ms);
                let settled_at = settled_at.filter(|_| settled_ms > 0);
                Ok(Beat::Confirmed { promised: number, settled_at })
            }
            "MISSING" => Ok(Beat::Missing),
            "EPOCH" => Ok(Beat::Epoch(number)),
            "CLOSED" => Ok(Beat::Closed),
            "LOGLESS" => Ok(Beat::Logless),
            "BEHIND" => Ok(Beat::Behind(number)),
            _ => Err(Failure::UnknownReply(code)),
        }
    }

    /// Closes the lane for a recovery, and notes a log that is missing as lost. Returns the names that keys of another
    /// type have now that stood in the place of a log; `None` if the lane has a newer epoch.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer, or has the lane of another installation.
    pub async fn fence(
        &self,
        link: &Link,
        lane: Lane,
        epoch: i64,
        identity: &Identity,
    ) -> Result<Option<Vec<String>>, Failure> {
        let [calls, claims] = self.logs(lane);
        let aside = [&calls, &claims].map(|log| Keys::log_aside(log, epoch));
        let keys = [&*self.keys.lane(lane), &*calls, &*claims, &*aside[0], &*aside[1]];
        let (code, calls_moved, claims_moved): (String, bool, bool) =
            self.fence.run(link, keys, (epoch, &identity.installation, life(identity))).await?;
        let moved = aside.into_iter().zip([calls_moved, claims_moved]);
        match code.as_str() {
            "FENCED" => Ok(Some(moved.filter(|(_, moved)| *moved).map(|(name, _)| name).collect())),
            "AHEAD" => Ok(None),
            "OTHER" => Err(Failure::OtherInstallation(lane)),
            _ => Err(Failure::UnknownReply(code)),
        }
    }

    /// Keys of the log of calls and of the log of claims.
    fn logs(&self, lane: Lane) -> [String; 2] {
        [LogLayout::Calls, LogLayout::Claims].map(|layout| self.keys.log(LogId { lane, layout }))
    }

    /// Opens the lane after its recovery. With a number of orders that were promised at least, all that were promised
    /// count as written. False if another recovery has begun, or Redis has another replication ID than the approved one, or
    /// other `steps` of the recovery than were taken: its memory went back.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn open(
        &self,
        link: &Link,
        lane: Lane,
        (epoch, beat, approved): (i64, i64, &Origin),
        promised_min: Option<i64>,
        steps: i64,
    ) -> Result<bool, Failure> {
        let promised_min = promised_min.unwrap_or(-1);
        let arguments = (epoch, beat, &approved.replication_id, promised_min, steps);
        let reply: String = self.open.run(link, [&self.keys.lane(lane)], arguments).await?;
        match reply.as_str() {
            "OPENED" | "PRESENT" => Ok(true),
            "FENCED" => Ok(false),
            _ => Err(Failure::UnknownReply(reply)),
        }
    }
}

/// The life of Postgres, as a script takes it.
fn life(identity: &Identity) -> &str {
    identity.life.as_deref().unwrap_or_default()
}

/// The epoch that the lane has in Redis; `None` without a lane, and for an epoch that is no number.
///
/// # Errors
///
/// When Redis doesn't answer.
pub async fn epoch(keys: &Keys, link: &Link, lane: Lane) -> RedisResult<Option<i64>> {
    let mut command = redis::cmd("HGET");
    command.arg(keys.lane(lane)).arg("epoch");
    match link.query::<Option<String>>(&command).await {
        Err(error) if is_data_error(&error) => Ok(None),
        epoch => Ok(epoch?.and_then(|epoch| epoch.parse().ok())),
    }
}

/// Orders that were ever promised in the lane, as Redis has it.
///
/// # Errors
///
/// When Redis doesn't answer.
pub async fn promised(keys: &Keys, link: &Link, lane: Lane) -> RedisResult<i64> {
    let mut command = redis::cmd("HGET");
    command.arg(keys.lane(lane)).arg("promised");
    Ok(link.query::<Option<i64>>(&command).await?.unwrap_or(0))
}

/// True if the log of the lane is noted as lost.
///
/// # Errors
///
/// When Redis doesn't answer.
pub async fn has_lost_log(keys: &Keys, link: &Link, lane: Lane) -> RedisResult<bool> {
    has_field(keys, link, lane, "log").await
}

/// True if the lane has begun its log of calls.
///
/// # Errors
///
/// When Redis doesn't answer.
pub async fn has_log_of_calls(keys: &Keys, link: &Link, lane: Lane) -> RedisResult<bool> {
    has_field(keys, link, lane, "promised").await
}

async fn has_field(keys: &Keys, link: &Link, lane: Lane, field: &str) -> RedisResult<bool> {
    let mut command = redis::cmd("HEXISTS");
    command.arg(keys.lane(lane)).arg(field);
    link.query(&command).await
}

/// True if Redis has the lane open under this epoch.
///
/// # Errors
///
/// When Redis doesn't answer.
pub async fn is_open(keys: &Keys, link: &Link, lane: Lane, epoch: i64) -> RedisResult<bool> {
    let mut command = redis::cmd("HMGET");
    command.arg(keys.lane(lane)).arg("epoch").arg("state");
    match link.query::<(Option<String>, Option<String>)>(&command).await {
        Err(error) if is_data_error(&error) => Ok(false),
        facts => {
            let (found, state) = facts?;
            Ok(found == Some(epoch.to_string()) && state.as_deref() == Some("open"))
        }
    }
}
