//! The order log of a lane: the claims that are not known to be written, and entries that were deleted too early.

use std::collections::HashMap;

use super::disagreement::{Disagreement, Kind};
use crate::kit::redis::is_data_error;
use crate::sale::ids::{CouponId, Lane, OrderId, UserId};
use crate::sale::log::{Entries, GROUP, LogState, is_missing_group};
use crate::sale::{Failure, Stores};

/// Entries read at a time; more would hold up all other clients. An entry may have some hundred claims.
const PAGE: usize = 100;

/// Entry id, consumer, idle ms, deliveries.
type Pending = (String, String, u64, u64);

/// Claims of a log whose entries aren't acknowledged, by their sale. Acknowledged ones in between do no harm.
pub struct InFlight {
    claims: HashMap<CouponId, Vec<(UserId, OrderId)>>,
    /// Whether no entry is left for a worker: one may hold no claim that can be read.
    pub is_settled: bool,
}

impl InFlight {
    /// A log without an entry for a worker.
    pub fn none() -> Self {
        Self { claims: HashMap::new(), is_settled: true }
    }

    /// Reads the log, from the oldest pending entry (or after the last delivered one) to its end.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer, or the log can't be read.
    pub async fn read(stores: &Stores, lane: Lane) -> Result<Self, Failure> {
        let mut claims = HashMap::<_, Vec<_>>::new();
        // Asked in this order, an entry that is delivered in between is pending or after the answer.
        let state = LogState::of(&stores.redis, &stores.keys, lane).await?;
        if state.is_settled() {
            return Ok(Self::none());
        }
        let oldest = pending(stores, lane, "-", 1).await?.into_iter().next();
        let oldest = oldest.map(|(entry, ..)| entry);
        let after = || state.delivered.map(|id| format!("({id}"));
        let mut from = oldest.or_else(after).unwrap_or_else(|| "-".to_owned());
        loop {
            let entries = range(stores, lane, &from, "+", PAGE).await?.0;
            let Some(last) = entries.last() else {
                return Ok(Self { claims, is_settled: false });
            };
            from = format!("({}", last.id);
            for claim in entries.iter().flat_map(|entry| &entry.claims) {
                let of_sale = claims.entry(claim.coupon_id).or_default();
                of_sale.push((claim.user_id, claim.order_id));
            }
        }
    }

    /// The claims of a sale.
    pub fn of(&self, coupon: CouponId) -> impl Iterator<Item = (UserId, OrderId)> {
        self.claims.get(&coupon).into_iter().flatten().copied()
    }

    /// The sales.
    pub fn coupons(&self) -> impl Iterator<Item = CouponId> {
        self.claims.keys().copied()
    }
}

/// States of the logs, `None` for one that can't be read; notes what is wrong with them.
pub(super) async fn check(
    stores: &Stores,
    lanes: &[Lane],
    found: &mut Vec<Disagreement>,
) -> Result<Vec<Option<LogState>>, Failure> {
    let mut states = Vec::with_capacity(lanes.len());
    for &lane in lanes {
        match LogState::of(&stores.redis, &stores.keys, lane).await {
            Err(error) if is_data_error(&error) => {
                states.push(None);
                let words = format!(
                    "its order log can't be read ({error}). No claim of this lane is written, and none can be accepted"
                );
                found.push(Disagreement::of_lane(lane, Kind::LogUnreadable, words));
            }
            state => {
                let state = state?;
                states.push(Some(state));
                if state.pending > 0 {
                    deleted(stores, lane, found).await?;
                }
            }
        }
    }
    Ok(states)
}

/// Notes pending entries that the log doesn't have any more.
async fn deleted(
    stores: &Stores,
    lane: Lane,
    found: &mut Vec<Disagreement>,
) -> Result<(), Failure> {
    let mut from = "-".to_owned();
    loop {
        let page = pending(stores, lane, &from, PAGE).await?;
        let Some((last, ..)) = page.last() else { return Ok(()) };
        from = format!("({last}");
        for (id, ..) in page {
            // Asked once more: entries that were acknowledged since may have been trimmed since.
            let is_gone = range(stores, lane, &id, &id, 1).await?.0.is_empty();
            let again = pending(stores, lane, &id, 1).await?;
            if is_gone && again.first().is_some_and(|(first, ..)| *first == id) {
                let words = format!(
                    "entry {id} was deleted from the order log before it was written. Its order is lost unless a buyer still names it"
                );
                found.push(Disagreement::of_lane(lane, Kind::PendingDeleted, words));
            }
        }
    }
}

async fn pending(
    Stores { redis, keys, .. }: &Stores,
    lane: Lane,
    from: &str,
    count: usize,
) -> Result<Vec<Pending>, Failure> {
    let mut command = redis::cmd("XPENDING");
    command.arg(keys.log(lane)).arg(GROUP).arg(from).arg("+").arg(count);
    match redis.query(&command).await {
        Err(error) if is_missing_group(&error) => Ok(Vec::new()),
        reply => Ok(reply?),
    }
}

async fn range(
    Stores { redis, keys, .. }: &Stores,
    lane: Lane,
    from: &str,
    to: &str,
    count: usize,
) -> Result<Entries, Failure> {
    let mut command = redis::cmd("XRANGE");
    command.arg(keys.log(lane)).arg(from).arg(to).arg("COUNT").arg(count);
    Ok(redis.query(&command).await?)
}
