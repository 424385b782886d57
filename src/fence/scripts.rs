//! The scripts that begin, close and open lanes.

use crate::store::Failure;
use crate::store::ids::{CouponId, Lane};
use crate::store::installation::Identity;
use crate::store::keys::Keys;
use crate::store::redis::Link;
use crate::store::script::{Script, VariadicScript};

/// Result of closing a lane in Redis.
#[derive(Debug, PartialEq, Eq)]
pub enum Fenced {
    /// The lane is closed.
    Closed,
    /// The same; the lane or its log wasn't there.
    WasLost,
    /// The same; a key of another type stood in the place of the order log, and has this name now.
    MovedAside(String),
    /// The lane has this epoch or a newer one, and stays as it is.
    Ahead,
}

/// The scripts.
pub struct FenceScripts {
    keys: Keys,
    begin: Script<1>,
    fence: Script<3>,
    open: VariadicScript,
}

impl FenceScripts {
    /// The scripts for lanes under these names.
    pub fn new(keys: Keys) -> Self {
        Self {
            keys,
            begin: Script::new(include_str!("../../lua/begin_lane.lua")),
            fence: Script::new(include_str!("../../lua/fence.lua")),
            open: VariadicScript::new(include_str!("../../lua/open_lane.lua")),
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

    /// Closes the lane for a recovery, and begins a log that is missing. Where an operator `has_decided` which store is
    /// right, the marks of what Postgres has to have go.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer, or has the lane of another installation.
    pub async fn fence(
        &self,
        link: &Link,
        (lane, epoch): (Lane, i64),
        log_group: &str,
        identity: &Identity,
        has_decided: bool,
    ) -> Result<Fenced, Failure> {
        let log = self.keys.log(lane);
        let aside = Keys::log_aside(&log, epoch);
        let keys = [&*self.keys.lane(lane), &*log, &*aside];
        let decided = i64::from(has_decided);
        let arguments = (epoch, &identity.installation, life(identity), log_group, decided);
        let reply: String = self.fence.run(link, keys, arguments).await?;
        match reply.as_str() {
            "FENCED" => Ok(Fenced::Closed),
            "LOST" => Ok(Fenced::WasLost),
            "MOVED" => Ok(Fenced::MovedAside(aside)),
            "AHEAD" => Ok(Fenced::Ahead),
            "OTHER" => Err(Failure::OtherInstallation(lane)),
            _ => Err(Failure::UnknownReply(reply)),
        }
    }

    /// Opens the lane after its recovery, with these sales that were kept. Its next order ids are behind those of `second`,
    /// in seconds since 2022. With a number of orders that were promised at least, all that were promised count as written.
    /// False if another recovery has begun.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn open(
        &self,
        link: &Link,
        (lane, epoch): (Lane, i64),
        kept: &[CouponId],
        second: i64,
        promised_min: Option<i64>,
    ) -> Result<bool, Failure> {
        let mut names = vec![self.keys.lane(lane)];
        names.extend(kept.iter().map(|coupon| self.keys.coupon(*coupon)));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let arguments = [epoch, second, promised_min.unwrap_or(-1)];
        let reply: String = self.open.run(link, &names, arguments.as_slice()).await?;
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
