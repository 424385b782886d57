//! Recoveries on an operator's word.

use super::closures::ClosureReason;
use super::harvest::unknown;
use crate::kit::postgres;
use crate::sale::audit::{self, Action, Actor, Event};
use crate::sale::coupon::stock;
use crate::sale::fence::{scripts, table};
use crate::sale::ids::{CouponId, Lane};
use crate::sale::order::live;
use crate::sale::{Failure, Stores, buyers};

/// A sale in both stores: the facts of each that the other one lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaleDifference {
    /// The coupon.
    pub coupon: CouponId,
    /// Whether Redis has the sale.
    pub is_there: bool,
    /// Buyers without an order and without a dead letter. Claims in the order log are among them.
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
    for sale in stock::loaded_in(pool, lane).await? {
        let coupon = sale.coupon;
        let mut only_redis = 0;
        let mut pages = buyers::Pages::begin(redis, keys, coupon).await?;
        while let Some(page) = pages.next().await? {
            only_redis += unknown(pool, coupon, page).await?.len();
        }
        let mut only_postgres = 0;
        let mut after = None;
        while let Some(page) = live::missing_page(pool, redis, keys, coupon, &mut after).await? {
            only_postgres += page.len();
        }
        let is_there = buyers::shards(redis, keys, coupon).await?.is_some();
        differences.push(SaleDifference { coupon, is_there, only_redis, only_postgres });
    }
    Ok(differences)
}

/// Closes a lane under an epoch above those of both stores; the keeper of a running service recovers it. With
/// `harvests`, buyers that only Redis has become orders.
///
/// # Errors
///
/// When a store doesn't answer.
pub async fn close(stores: &Stores, lane: Lane, harvests: bool, by: &Actor) -> Result<(), Failure> {
    let link = stores.redis.link().await?;
    let in_redis = scripts::epoch(&stores.keys, &link, lane).await?.unwrap_or(0);
    let mut tx = postgres::begin(&stores.pool).await?;
    let reason = ClosureReason::Operator.sentence();
    let closed = table::close_by_hand(&mut tx, lane, in_redis, harvests, reason).await?;
    if let Some((before, after)) = closed {
        let event = Event::without_subject(Action::RecoverLane).before(before).after(after);
        audit::note(&mut tx, by, event).await?;
    }
    tx.commit().await?;
    Ok(())
}
