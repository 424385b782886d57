//! Repairs of findings, while claims go on. `docs/reconcile.md` says why each is safe, and why there are not more.
//!
//! A repair makes a change that Postgres can decide by itself, in one transaction, with its constraints as guard. Where
//! Redis has other buyers than Postgres, the comparison has closed the lane, and its recovery repairs them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::compare;
use super::disagreement::{Disagreement, Kind};
use crate::sale::coupon::stock;
use crate::sale::ids::CouponId;
use crate::sale::order::give_back::stock_returns;
use crate::sale::reconcile::Report;
use crate::sale::{Failure, Stores, in_plain_text};

/// Repair of one disagreement, or the reason against it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Repair {
    /// Kind of the disagreement: a heading of docs/reconcile.md.
    pub code: String,
    /// The coupon.
    pub coupon_id: CouponId,
    /// Whether the repair has changed anything.
    pub done: bool,
    /// The repair in words.
    pub detail: String,
}

/// Whether a repair may settle a finding of this kind.
pub fn can_repair(code: &str) -> bool {
    ["sold_miscounted", "revision_differs", "place_not_freed"].contains(&code)
}

/// Repairs the repairable findings of a comparison.
///
/// # Errors
///
/// When a store doesn't answer. Earlier repairs stay.
pub async fn repair(stores: &Stores, report: &Report) -> Result<Vec<Repair>, Failure> {
    let mut repairs = Vec::new();
    for found in &report.disagreements {
        let Some(coupon) = found.coupon else { continue };
        let repaired = match repair_one(stores, coupon, found).await {
            // The others are repaired all the same.
            Err(failure) if failure.is_of_item() => {
                let why = in_plain_text(&failure.to_string());
                Some((false, format!("it could not be repaired: {why}")))
            }
            repaired => repaired?,
        };
        repairs.extend(repaired.map(|(done, detail)| Repair {
            code: found.code().to_owned(),
            coupon_id: coupon,
            done,
            detail,
        }));
    }
    Ok(repairs)
}

async fn repair_one(
    stores: &Stores,
    coupon: CouponId,
    found: &Disagreement,
) -> Result<Option<(bool, String)>, Failure> {
    Ok(match (found.kind, found.claim) {
        (Kind::SoldMiscounted, _) => Some(recount(stores, coupon).await?),
        (Kind::RevisionDiffers, _) => apply_again(stores, coupon).await?,
        (Kind::PlaceNotFreed, Some((user, order))) => {
            let done = stock_returns::write_place_again(&stores.pool, user, order).await?;
            Some(match done {
                true => (true, format!("order {order} is on its way off the list of user {user}")),
                false => (false, format!("order {order} of user {user} is unpaid")),
            })
        }
        _ => None,
    })
}

async fn recount(stores: &Stores, coupon: CouponId) -> Result<(bool, String), Failure> {
    Ok(match stock::recount_sold(&stores.pool, coupon).await? {
        Some((before, after)) if before != after => {
            (true, format!("`sold` was {before}, and is {after} now"))
        }
        Some((before, _)) => (false, format!("`sold` is {before} as it should be, by now")),
        None => (false, "there are more live orders than units, so `sold` can't count them".into()),
    })
}

/// Has the newest revision of a coupon applied by the pass over changes, if Redis has an older one.
async fn apply_again(stores: &Stores, coupon: CouponId) -> Result<Option<(bool, String)>, Failure> {
    let facts = compare::facts(stores, coupon).await?;
    let Some(in_redis) = facts.and_then(|(terms, census)| terms.newer_than(&census)) else {
        return Ok(None);
    };
    Ok(Some(match stock::note_behind(&stores.pool, coupon, in_redis).await? {
        true => (true, format!("its newest revision is on its way to Redis, which has {in_redis}")),
        false => (false, "its newest revision was on its way to Redis before".to_owned()),
    }))
}
