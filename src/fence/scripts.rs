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
    Closed,
    /// The lane is closed; it or its log wasn't there.
    WasLost,
    /// The lane is closed; a key of another type in the place of the order log was renamed to this.
    MovedAside(String),
    /// The lane isn't closed, because it has this epoch or a newer one.
    Ahead,
}

pub struct FenceScripts {
    keys: Keys,
    begin: Script<1>,
    fence: Script<3>,
    open: VariadicScript,
}

impl FenceScripts {
    pub fn new(keys: Keys) -> Self {
        Self {
            keys,
            begin: Script::new(include_str!("../../lua/begin_lane.lua")),
            fence: Script::new(include_str!("../../lua/fence.lua")),
            open: VariadicScript::new(include_str!("../../lua/open_lane.lua")),
        }
    }

    /// Begins a lane that Redis has never had. Returns the epoch that the lane has now.
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
        let arguments = (epoch, &identity.installation, postgres_run(identity));
        let found: i64 = self.begin.run(link, [&self.keys.lane(lane)], arguments).await?;
        if found == 0 { Err(Failure::OtherInstallation(lane)) } else { Ok(found) }
    }

    /// Closes the lane for a recovery, and begins a log that is missing. If an operator `has_decided` which store is
    /// right, the marks of what Postgres has to have are removed.
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
        let arguments = (epoch, &identity.installation, postgres_run(identity), log_group, decided);
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

    /// Opens the lane after its recovery, with these sales that were kept. Its next order ids begin after `second`, in
    /// seconds since 2022. With `accepted_min`, the lane has accepted at least so many orders, and all accepted ones
    /// count as written. False if another recovery has begun.
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
        accepted_min: Option<i64>,
    ) -> Result<bool, Failure> {
        let mut names = vec![self.keys.lane(lane)];
        names.extend(kept.iter().map(|coupon| self.keys.coupon(*coupon)));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let arguments = [epoch, second, accepted_min.unwrap_or(-1)];
        let reply: String = self.open.run(link, &names, arguments.as_slice()).await?;
        match reply.as_str() {
            "OPENED" | "PRESENT" => Ok(true),
            "FENCED" => Ok(false),
            _ => Err(Failure::UnknownReply(reply)),
        }
    }
}

/// The incarnation of Postgres; scripts take '' for an unknown one.
fn postgres_run(identity: &Identity) -> &str {
    identity.postgres_run.as_deref().unwrap_or_default()
}
