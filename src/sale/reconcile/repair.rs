//! Repairs: corrections that are safe while claims and orders go on.
//!
//! # Model
//!
//! A repair never touches a stock and never loads one: every known repair that does sells units twice, because
//! entries in flight aren't counted on the side that it reads. So a repair does only what Postgres can decide by
//! itself, in one transaction, guarded by the same constraints as any other:
//!
//! * `order_lost`: the missing row is written as the worker would have written it from the entry. The unit has
//!   been taken in Redis already. If the entry turns up after all, it is a repeat of the row; if Postgres has
//!   no unit or no place for it, it becomes an open dead letter as any entry would.
//! * `sold_miscounted`: `sold` is set to the number of live orders while its row is locked. A transaction that
//!   inserts or closes an order also changes `sold`, so each order is counted either here or by itself.
//! * `revision_differs`, where Redis has the older one: the note that it was applied is taken back, so that the pass
//!   over changes applies the newest revision.
//! * `not_given_back`: the return of the unit is noted again. The order is closed for good, and the script returns a
//!   unit only for a buyer who still holds this very order.
//! * `place_not_freed`: the removal of the order from its user's list is noted again. No order becomes unpaid again,
//!   and the script removes it by its id.
//!
//! # Trust in Redis
//!
//! A lost order is written, and a unit returned, because of a buyer in Redis. Where Redis contradicts itself or
//! Postgres about the same coupon (`is_doubtful` below), that buyer isn't proof, and an operator has to look first.
//!
//! # Twice
//!
//! A repeated repair finds the row, and the right count, and changes nothing.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::base::limits;
use crate::sale::buyers;
use crate::sale::coupon::stock;
use crate::sale::fence;
use crate::sale::ids::public::sentence;
use crate::sale::ids::{CouponId, Lane, OrderId, UserId};
use crate::sale::in_plain_text;
use crate::sale::log::LoggedClaim;
use crate::sale::order::dead_letter::{self, DeadLetter, Reason};
use crate::sale::order::give_back::stock_returns::{self, StockReturn};
use crate::sale::order::insert::{NotWritten, Written};
use crate::sale::order::write::Orders;
use crate::sale::reconcile::{Disagreement, Listing, Report};
use crate::sale::{Failure, Stores};

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
    #[serde(serialize_with = "sentence")]
    pub detail: String,
}

/// Whether a repair may settle a finding of this kind.
pub fn can_repair(code: &str) -> bool {
    let repairable =
        ["order_lost", "sold_miscounted", "revision_differs", "not_given_back", "place_not_freed"];
    repairable.contains(&code)
}

/// Repairs the repairable findings of a comparison. Orders that are written may stay unpaid for `payment_window`.
///
/// # Errors
///
/// When a store doesn't answer. Earlier repairs stay.
pub async fn repair(
    stores: &Stores,
    report: &Report,
    payment_window: Duration,
) -> Result<Vec<Repair>, Failure> {
    let mut repairs = Vec::new();
    // Counts first: a lost order is written only where `sold` leaves room for it.
    for disagreement in &report.disagreements {
        if let Disagreement::SoldMiscounted { coupon, .. } = *disagreement {
            let counted = or_why_not(recount(stores, coupon).await)?;
            repairs.push(note(disagreement, coupon, counted));
        }
    }
    let doubtful: Vec<CouponId> = report
        .disagreements
        .iter()
        .filter(|found| is_doubtful(found))
        .filter_map(Disagreement::coupon)
        .collect();
    for disagreement in &report.disagreements {
        let (coupon, repaired) = match *disagreement {
            Disagreement::RevisionDiffers { coupon, redis, postgres } if redis < postgres => {
                repairs.push(apply_again(stores, disagreement.code(), coupon, redis).await?);
                continue;
            }
            Disagreement::OrderLost { coupon, user, order }
            | Disagreement::NotGivenBack { coupon, user, order }
                if doubtful.contains(&coupon) =>
            {
                (coupon, Ok(left_alone(user, order)))
            }
            Disagreement::OrderLost { coupon, user, order } => {
                let claim = LoggedClaim::without_entry(coupon, user, order);
                (coupon, write_lost(stores, &claim, payment_window).await)
            }
            Disagreement::NotGivenBack { coupon, user, order } => {
                (coupon, return_again(stores, coupon, user, order).await)
            }
            // Repaired above or below, or left to a person.
            Disagreement::SaleMissing { .. }
            | Disagreement::SaleOrphaned { .. }
            | Disagreement::ShardsMissing { .. }
            | Disagreement::SaleUnreadable { .. }
            | Disagreement::NotConserved { .. }
            | Disagreement::NegativeStock { .. }
            | Disagreement::TotalDiffers { .. }
            | Disagreement::TermsDiffer { .. }
            | Disagreement::RevisionDiffers { .. }
            | Disagreement::EpochDiffers { .. }
            | Disagreement::Oversold { .. }
            | Disagreement::SoldMiscounted { .. }
            | Disagreement::BuyerMissing { .. }
            | Disagreement::AcknowledgedUnwritten { .. }
            | Disagreement::PendingDeleted { .. }
            | Disagreement::Numbering(_)
            | Disagreement::LogUnreadable { .. }
            | Disagreement::Listing(_) => continue,
        };
        repairs.push(note(disagreement, coupon, or_why_not(repaired)?));
    }
    repairs.extend(free_places(stores, report).await?);
    Ok(repairs)
}

/// Has orders that aren't unpaid removed from their users' lists. Postgres alone knows that they aren't.
async fn free_places(stores: &Stores, report: &Report) -> Result<Vec<Repair>, Failure> {
    let mut repairs = Vec::new();
    for disagreement in &report.disagreements {
        let Disagreement::Listing(Listing::NotFreed {
            user, order, row: Some((coupon, _)), ..
        }) = *disagreement
        else {
            continue;
        };
        let done = stock_returns::write_place_again(&stores.pool, user, order).await?;
        let detail = match done {
            true => format!("order {order} is on its way off the list of user {user}"),
            false => format!("order {order} of user {user} is unpaid"),
        };
        let code = disagreement.code().to_owned();
        repairs.push(Repair { code, coupon_id: coupon, done, detail });
    }
    Ok(repairs)
}

fn left_alone(user: UserId, order: OrderId) -> (bool, String) {
    (false, format!("nothing is done for order {order} of user {user}: {DOUBTFUL}"))
}

/// Repairs one finding. A failure leaves the others to be repaired.
fn or_why_not(repaired: Result<(bool, String), Failure>) -> Result<(bool, String), Failure> {
    match repaired {
        Err(failure) if failure.is_of_item() => {
            let why = in_plain_text(&failure.to_string());
            Ok((false, format!("it could not be repaired: {why}")))
        }
        repaired => repaired,
    }
}

fn note(found: &Disagreement, coupon: CouponId, (done, detail): (bool, String)) -> Repair {
    Repair { code: found.code().to_owned(), coupon_id: coupon, done, detail }
}

const DOUBTFUL: &str = "other findings about this coupon say that Redis can't be believed about it";

/// Whether a buyer of this coupon in Redis is no proof of a promise.
fn is_doubtful(found: &Disagreement) -> bool {
    match found {
        Disagreement::SaleMissing { .. }
        | Disagreement::SaleOrphaned { .. }
        | Disagreement::ShardsMissing { .. }
        | Disagreement::SaleUnreadable { .. }
        | Disagreement::NotConserved { .. }
        | Disagreement::NegativeStock { .. }
        | Disagreement::TotalDiffers { .. }
        | Disagreement::EpochDiffers { .. }
        | Disagreement::Oversold { .. }
        | Disagreement::BuyerMissing { .. } => true,
        Disagreement::TermsDiffer { .. }
        | Disagreement::RevisionDiffers { .. }
        | Disagreement::SoldMiscounted { .. }
        | Disagreement::OrderLost { .. }
        | Disagreement::NotGivenBack { .. }
        | Disagreement::AcknowledgedUnwritten { .. }
        | Disagreement::PendingDeleted { .. }
        | Disagreement::Numbering(_)
        | Disagreement::LogUnreadable { .. }
        | Disagreement::Listing(_) => false,
    }
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

/// Writes an order that a buyer was promised, as its entry would have been written.
async fn write_lost(
    stores: &Stores,
    claim: &LoggedClaim,
    payment_window: Duration,
) -> Result<(bool, String), Failure> {
    let Stores { redis, keys, .. } = stores;
    let LoggedClaim { coupon_id: coupon, user_id: user, order_id: order, .. } = *claim;
    let lane = coupon.lane();
    // Before the buyer is looked up: after a recovery in between, that buyer may be gone, and nothing is written.
    let epoch = fence::table::epoch(&stores.pool, lane).await?.unwrap_or(0);
    let promised = buyers::orders_of(redis, keys, coupon, [user].into_iter()).await?;
    if promised != [Some(order)] {
        return Ok((false, format!("user {user} doesn't hold order {order} any more")));
    }
    let written = Orders::new(stores.pool.clone(), limits::BATCH_TIMEOUT, payment_window)
        .write((lane, epoch), &[*claim], &CancellationToken::new())
        .await;
    match written {
        Ok(Written { inserted: 1, .. }) => {
            Ok((true, format!("order {order} of user {user} is written")))
        }
        Ok(Written { conflicts: 1, .. }) => {
            let why = "its id or its buyer's place belongs to another order";
            Ok((true, format!("order {order} of user {user} is a dead letter now: {why}")))
        }
        Ok(_) => Ok((false, format!("order {order} of user {user} is there by now"))),
        Err(NotWritten::Poison(reason, detail)) => {
            put_aside(stores, coupon.lane(), claim, reason, &detail).await?;
            Ok((true, format!("order {order} of user {user} is a dead letter now: {detail}")))
        }
        Err(NotWritten::LocksLost) => unreachable!("there are none to lose"),
        Err(NotWritten::Stale) => Err(Failure::recovering(lane)),
        Err(NotWritten::Postgres(error)) => Err(error.into()),
    }
}

/// Has the newest revision of a coupon applied by the pass over changes.
async fn apply_again(
    stores: &Stores,
    code: &str,
    coupon: CouponId,
    revision: i64,
) -> Result<Repair, Failure> {
    let done = stock::note_behind(&stores.pool, coupon, revision).await?;
    let detail = match done {
        true => format!("its newest revision is on its way to Redis, which has {revision}"),
        false => "its newest revision was on its way to Redis before".to_owned(),
    };
    Ok(Repair { code: code.to_owned(), coupon_id: coupon, done, detail })
}

/// Has the unit of a closed order returned by the pass over stock returns.
async fn return_again(
    stores: &Stores,
    coupon: CouponId,
    user: UserId,
    order: OrderId,
) -> Result<(bool, String), Failure> {
    let back = StockReturn { order_id: order, coupon_id: coupon, user_id: user };
    let done = stock_returns::write_again(&stores.pool, &back).await?;
    let detail = match done {
        true => format!("the unit of order {order} of user {user} is on its way back"),
        false => format!("order {order} of user {user} isn't closed"),
    };
    Ok((done, detail))
}

async fn put_aside(
    stores: &Stores,
    lane: Lane,
    claim: &LoggedClaim,
    reason: Reason,
    detail: &str,
) -> Result<(), Failure> {
    let letter = DeadLetter::of_claim(lane, claim, reason, detail);
    dead_letter::insert(&stores.pool, &letter).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn can_repair_names_the_findings_that_postgres_alone_decides() {
        let can: Vec<&str> =
            Disagreement::CODES.into_iter().filter(|code| can_repair(code)).collect();
        assert_eq!(
            can,
            [
                "revision_differs",
                "sold_miscounted",
                "order_lost",
                "not_given_back",
                "place_not_freed"
            ]
        );
        assert!(!can_repair(""));
    }

    #[test]
    fn or_why_not_leaves_the_failures_of_a_store_and_tells_those_of_an_item() {
        assert_eq!(or_why_not(Ok((true, "done".into()))).ok(), Some((true, "done".into())));
        let of_item = or_why_not(Err(Failure::RefundRefused("no".into()))).expect("it is told");
        assert!(!of_item.0 && of_item.1.starts_with("it could not be repaired: "), "{of_item:?}");
        assert!(or_why_not(Err(Failure::NoReply)).is_err());
    }
}
