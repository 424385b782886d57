//! Worth of a 202 by the way in which Redis keeps its data and is replaced: one wording for `serve` and `doctor`.

use std::fmt;

use crate::base::durability::Level;
use crate::kit::redis_facts::{Replay, ServerFacts};
use crate::sale::durability::NOT_REPLAYED;

/// Message about a master that sentinels may replace, and that would not notice.
pub const KEEPS_ACCEPTING: &str = "min-replicas-to-write is 0: a master that the sentinels replace while it is paused or cut off goes on accepting claims, until it is told that it is a replica, and then loses all of them. Set min-replicas-to-write 1 and min-replicas-max-lag 2, on each server that may become the master";

/// The price of a level that waits for each replica that there is, if it is this one.
pub fn without_spare(level: Option<Level>, facts: &ServerFacts) -> Option<String> {
    let needed = level.map_or(0, Level::replicas);
    (needed > 0 && facts.replicas <= needed).then(|| {
        format!(
            "--durability replica:{needed} waits for {needed}, and {} are connected: once one more is lost, no claim is confirmed. Add a replica, or ask for fewer",
            facts.replicas
        )
    })
}

/// Persistence of Redis: how much of the acknowledged data survives which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// `appendfsync always`.
    Disk,
    /// `appendfsync everysec`.
    DiskWithinSeconds,
    /// `appendfsync no`.
    DiskSometime,
    /// An append-only file, but CONFIG is forbidden.
    Unknown,
    /// An append-only file that isn't replayed in full.
    NotReplayed,
    /// An append-only file, but ACL GETUSER is forbidden, which tells whether it is replayed in full.
    ReplayUnknown,
    /// `appendonly no`, and snapshots perhaps.
    Snapshots,
    /// `appendonly no`, and no snapshots.
    Memory,
}

impl Persistence {
    /// The persistence to which the server's settings amount.
    pub fn of(facts: &ServerFacts) -> Self {
        let settings = facts.settings.as_ref();
        if !facts.appendonly {
            let never_saves = settings.is_some_and(|settings| settings.save.is_empty());
            return if never_saves { Self::Memory } else { Self::Snapshots };
        }
        if facts.replay == Replay::WithoutScripts {
            return Self::NotReplayed;
        }
        match settings.map(|settings| settings.appendfsync.as_str()) {
            Some("always") if facts.replay == Replay::Unknown => Self::ReplayUnknown,
            Some("always") => Self::Disk,
            Some("everysec") => Self::DiskWithinSeconds,
            Some(_) => Self::DiskSometime,
            None => Self::Unknown,
        }
    }

    /// Whether accepted claims survive a kill of Redis, or a power cut.
    pub fn survives_a_kill(self) -> bool {
        self == Self::Disk
    }

    /// Whether a restart or a crash of Redis alone can lose all claims that are not in Postgres yet.
    pub fn is_hopeless(self) -> bool {
        matches!(self, Self::Snapshots | Self::Memory | Self::NotReplayed)
    }
}

impl fmt::Display for Persistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disk => {
                "a 202 is on disk (appendfsync always): it survives the death of any process and a power cut"
            }
            Self::DiskWithinSeconds => {
                "a 202 is in Redis's memory, and on disk about a second later (appendfsync everysec): a kill or a power cut can lose the confirmed claims of the last second or two; set appendfsync always to lose none"
            }
            Self::DiskSometime => {
                "a 202 is in Redis's memory, and on disk when the operating system pleases (appendfsync no): a power cut loses what has not been written by then; set appendfsync always to lose none"
            }
            Self::Unknown => {
                "a 202 is in Redis's append-only file, and how soon that is on disk can't be told, because CONFIG is forbidden here: unless appendfsync is always, a kill or a power cut can lose the last confirmed claims; ask its operator"
            }
            Self::NotReplayed => NOT_REPLAYED,
            Self::ReplayUnknown => {
                "a 202 is on disk (appendfsync always), and whether it comes back at Redis's next start can't be told, because ACL GETUSER is forbidden here: unless the user `default` has all rights, all claims are dropped; allow +acl|getuser"
            }
            Self::Snapshots => {
                "a 202 is in Redis's memory, and in its next snapshot at best (appendonly no): when Redis is killed, every claim since the last snapshot that isn't in Postgres is lost, and the units are offered again; set appendonly yes and appendfsync always to lose none"
            }
            Self::Memory => {
                "a 202 is in Redis's memory only (appendonly no, and no snapshots): a restart of Redis loses every claim that hasn't been written to Postgres; set appendonly yes and appendfsync always to lose none"
            }
        })
    }
}
