//! The fence: each lane has an epoch, and is open or recovering.
//!
//! # Model
//!
//! Redis sells, and Postgres approves the Redis that sells. The approval of a lane is an epoch, the life and the
//! replication ID of the Redis that was looked at (`run_id`, `master_replid`), and a *beat*, a count that a process
//! raises in Redis once a second, and of a lane at rest less often ([`round`]), and notes in Postgres. The lane's hash
//! in Redis holds epoch, state and beat. Every script that sells or returns units reads it and refuses a caller with
//! another epoch, and any caller while the lane is recovering or has no hash at all.
//!
//! # Authority
//!
//! Postgres decides, and epochs only go up. Raising the epoch is one statement, which waits for the transactions that
//! write orders under the old one; Redis is told after that. A lane is opened by the process that raised its epoch
//! last, and by no other.
//!
//! # What each failure does
//!
//! * Redis is started anew: another `run_id`. No process uses it for claims until the lanes have been looked at.
//! * Redis loses everything: the hash is missing, and the scripts refuse in the same moment.
//! * Redis goes back in time without a new life (a replica that was synchronised anew and promoted): another
//!   replication ID, found by the next look, within a second, however long no process has looked. Usually also
//!   another beat than the noted one.
//! * A process dies between raising the epoch and telling Redis, or between opening in Postgres and in Redis: the
//!   lane is looked at once more.
//!
//! # What is not promised
//!
//! A Redis whose memory goes back (a snapshot of a running machine) keeps its life and its replication ID. If it has
//! the noted beat, because it went back by less than a second, or because no process kept the lanes or Postgres was
//! away, that is not noticed here (`crates/recovery-model`, `BeatAfterGap`). The comparison of the stores names what
//! differs then.

// The approved states, as this process knows them.
pub mod states;

// The lanes that one look compares.
pub mod round;

// Scripts of the fence.
pub mod scripts;

// The approved states, as Postgres has them.
pub mod table;

pub use states::{LaneState, LaneStates};

use std::sync::Arc;

use sqlx::PgPool;

use crate::kit::redis::Link;
use crate::sale::{Failure, Stores, installation};
use scripts::FenceScripts;
use table::StoredLane;

/// The states of the lanes. Lanes that Redis has never had are begun, if Redis answers; the keeper begins the others
/// later.
///
/// # Errors
///
/// When Postgres doesn't answer, or isn't migrated; or Redis is another installation's.
pub async fn states_of(stores: &Stores) -> Result<Arc<LaneStates>, Failure> {
    table::add(&stores.pool).await?;
    let states = LaneStates::new(stores.pool.clone());
    let stored = states.read_now().await?;
    if stored.iter().any(|lane| lane.origin.is_none())
        && let Err(error) = begin(stores, &states, &stored).await
    {
        if let Failure::OtherInstallation(_) = error {
            return Err(error);
        }
        tracing::debug!(%error, "the lanes can't be begun yet");
    }
    Ok(Arc::new(states))
}

async fn begin(stores: &Stores, states: &LaneStates, stored: &[StoredLane]) -> Result<(), Failure> {
    let link = stores.redis.link().await?;
    let scripts = FenceScripts::new(stores.keys.clone());
    if begin_new(&stores.pool, &scripts, &link, stored).await? {
        states.read_now().await?;
    }
    Ok(())
}

/// Begins those of these lanes that Redis has never had, and approves this Redis for them. Returns whether there were
/// any.
///
/// # Errors
///
/// When a store doesn't answer, or Redis is another installation's.
pub async fn begin_new(
    pool: &PgPool,
    scripts: &FenceScripts,
    link: &Link,
    stored: &[StoredLane],
) -> Result<bool, Failure> {
    let new: Vec<&StoredLane> = stored.iter().filter(|lane| lane.origin.is_none()).collect();
    if new.is_empty() {
        return Ok(false);
    }
    let mut begun = false;
    let (origin, identity) = (link.origin().await?, installation::identity(pool).await?);
    for lane in new {
        if scripts.begin(link, lane.lane, lane.epoch, &identity).await? == lane.epoch {
            begun |= table::approve_first(pool, lane.lane, &origin).await?;
        }
    }
    Ok(begun)
}
