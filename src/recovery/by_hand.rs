//! Recoveries ordered by an operator.

use serde_json::json;

use crate::fence::ClosureReason;
use crate::fence::in_redis::read_lane;
use crate::fence::table::{self, Trust};
use crate::store::audit::{self, Action, Actor, Event};
use crate::store::ids::Lane;
use crate::store::postgres;
use crate::store::{Failure, Stores};

/// Closes a lane under an epoch above those of both stores. The leader of a running service recovers it, and believes
/// the store `trusts` about what only Redis has.
///
/// # Errors
///
/// When a store doesn't answer.
pub async fn close(stores: &Stores, lane: Lane, trusts: Trust, by: &Actor) -> Result<(), Failure> {
    let in_redis = read_lane(stores, lane).await?.epoch;
    let mut tx = postgres::begin(&stores.pool).await?;
    let reason = ClosureReason::Operator;
    if let Some(epoch) = table::close_by_hand(&mut tx, lane, in_redis, trusts, reason).await? {
        let trusts = format!("{trusts:?}").to_lowercase();
        let event = Event::without_subject(Action::RecoverLane)
            .after(json!({"lane": lane.get(), "epoch": epoch, "trusts": trusts}));
        audit::note(&mut tx, by, event).await?;
    }
    tx.commit().await?;
    Ok(())
}
