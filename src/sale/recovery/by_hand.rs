//! Recoveries on an operator's word.

use crate::kit::postgres;
use crate::sale::audit::{self, Action, Actor, Event};
use crate::sale::coupon::stock;
use crate::sale::fence::ClosureReason;
use crate::sale::fence::look::look_at;
use crate::sale::fence::table::{self, Trust};
use crate::sale::ids::{CouponId, Lane};
use crate::sale::reconcile::compare;
use crate::sale::{Failure, Stores, buyers};

/// A sale in both stores: the facts of each that the other one lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaleDifference {
    /// The coupon.
    pub coupon: CouponId,
    /// Whether Redis has the sale.
    pub is_there: bool,
    /// Buyers without an order, an entry in the log and a dead letter.
    pub only_redis: usize,
    /// Live orders without a buyer.
    pub only_postgres: usize,
}

/// The differences of each sale of a lane.
///
/// # Errors
///
/// When a store doesn't answer, or Redis has buyers that can't be read.
pub async fn differences(stores: &Stores, lane: Lane) -> Result<Vec<SaleDifference>, Failure> {
    let Stores { pool, redis, keys } = stores;
    let mut differences = Vec::new();
    for coupon in stock::loaded_in(pool, lane).await? {
        let compared = compare::buyers(stores, coupon, None).await?;
        let is_there = buyers::shards(redis, keys, coupon).await?.is_some();
        let (only_redis, only_postgres) = (compared.lost.len(), compared.missing.len());
        differences.push(SaleDifference { coupon, is_there, only_redis, only_postgres });
    }
    Ok(differences)
}

/// Closes a lane under an epoch above those of both stores; the keeper of a running service recovers it, and believes this
/// store about what only Redis has.
///
/// # Errors
///
/// When a store doesn't answer.
pub async fn close(stores: &Stores, lane: Lane, trusts: Trust, by: &Actor) -> Result<(), Failure> {
    let in_redis = look_at(&stores.redis, &stores.keys, lane).await?.epoch;
    let mut tx = postgres::begin(&stores.pool).await?;
    let reason = ClosureReason::Operator;
    let closed = table::close_by_hand(&mut tx, lane, in_redis, trusts, reason).await?;
    if let Some((before, after)) = closed {
        let event = Event::without_subject(Action::RecoverLane).before(before).after(after);
        audit::note(&mut tx, by, event).await?;
    }
    tx.commit().await?;
    Ok(())
}
