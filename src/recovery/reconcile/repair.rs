//! The repair of a finding, while claims go on: `sold`, the count of Postgres, is counted again.
//!
//! Postgres decides it by itself, in one transaction, with its constraints as guard. Where Redis has other buyers than
//! Postgres, the comparison has closed the lane, and its recovery repairs them. An older revision in Redis is the business
//! of the pass over changes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::disagreement::Kind;
use crate::coupon::stock;
use crate::recovery::reconcile::Report;
use crate::store::ids::CouponId;
use crate::store::{Failure, Stores, in_plain_text};

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
    code == Kind::SoldMiscounted.code()
}

/// Repairs the repairable findings of a comparison.
///
/// # Errors
///
/// When a store doesn't answer. Earlier repairs stay.
pub async fn repair(stores: &Stores, report: &Report) -> Result<Vec<Repair>, Failure> {
    let mut repairs = Vec::new();
    let found = report.disagreements.iter().filter(|found| can_repair(found.code()));
    for (code, coupon_id) in found.map(|found| (found.code().to_owned(), found.coupon)) {
        let (done, detail) = match recount(stores, coupon_id).await {
            // The others are repaired all the same.
            Err(failure) if failure.is_of_item() => (
                false,
                format!("it could not be repaired: {}", in_plain_text(&failure.to_string())),
            ),
            recounted => recounted?,
        };
        repairs.push(Repair { code, coupon_id, done, detail });
    }
    Ok(repairs)
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
