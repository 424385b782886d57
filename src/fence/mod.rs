//! The fence: each lane has an epoch, and is open or recovering.
//!
//! # Model
//!
//! Redis sells, and Postgres approves the Redis that sells. Each approval of a lane is numbered by an epoch. The lane's
//! hash in Redis holds the epoch, the state, and the replication ID of the server that the lane was opened for. Every
//! script that sells, releases, admits, changes or loads reads this hash. It refuses a caller with another epoch. It
//! refuses all callers while the lane is closed, its hash is missing, or the server has another replication ID.
//!
//! # Authority
//!
//! Postgres decides, and epochs only go up. Raising the epoch is one statement, which waits for the transactions that
//! write orders under the old one; Redis is told after that. Only the process that raised the epoch of a lane last may
//! open the lane.
//!
//! # What each failure does
//!
//! * Redis restarts or resynchronises, or a replica is promoted: the replication ID is another one, and the scripts
//!   refuse at once.
//! * Redis loses everything: the hash is missing, and the scripts refuse at once.
//! * A process dies between raising the epoch and telling Redis, or between opening the lane in Postgres and in Redis:
//!   the leader finds that the two differ, and closes the lane once more.
//!
//! # What is not promised
//!
//! A Redis whose memory goes back in time (a snapshot of a running machine) keeps its replication ID. The next
//! comparison of the stores finds that, and closes the lane.

// Unwritten claims: claims that this process has accepted, until they are committed.
pub mod unwritten;

// The alarm for a sale that Redis has lost.
pub mod loss;

// The approved states, as this process knows them.
pub mod states;

// What Redis knows of the lanes.
pub mod in_redis;

// Scripts of the fence.
pub mod scripts;

// The approved states, as Postgres has them.
pub mod table;

// Why lanes are closed.
pub mod reason;

pub use reason::ClosureReason;
pub use states::{LaneState, LaneStates};

use std::sync::Arc;

use sqlx::PgPool;

use crate::store::redis::Link;
use crate::store::{Failure, Stores, installation};
use scripts::FenceScripts;
use table::StoredLane;

/// The states of the lanes. Begins the lanes that Redis has never had, if Redis answers; otherwise the leader begins
/// them later.
///
/// # Errors
///
/// When Postgres doesn't answer, or isn't migrated; or Redis is another installation's.
pub async fn states_of(stores: &Stores) -> Result<Arc<LaneStates>, Failure> {
    table::add(&stores.pool).await?;
    let states = LaneStates::new(stores.pool.clone());
    let stored = states.read_now().await?;
    if stored.iter().any(|lane| !lane.has_begun)
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
    let scripts = FenceScripts::new(stores.keys.clone());
    for (server, redis) in stores.fleet.each().enumerate() {
        let is_there = |stored: &&StoredLane| stores.fleet.number(stored.lane) == server;
        let there: Vec<StoredLane> = stored.iter().filter(is_there).cloned().collect();
        begin_new(&stores.pool, &scripts, &*redis.link().await?, &there).await?;
    }
    states.read_now().await?;
    Ok(())
}

/// Begins those of a server's lanes that Redis has never had. Returns whether there were any.
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
    let new: Vec<&StoredLane> = stored.iter().filter(|lane| !lane.has_begun).collect();
    if new.is_empty() {
        return Ok(false);
    }
    let identity = installation::identity(pool).await?;
    for lane in new {
        if scripts.begin(link, lane.lane, lane.epoch, &identity).await? == lane.epoch {
            table::note_begun(pool, lane.lane).await?;
        }
    }
    Ok(true)
}
