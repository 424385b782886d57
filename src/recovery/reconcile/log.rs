//! The claims in a lane's order log that aren't known to be written.

use std::collections::HashMap;

use redis::Value;

use crate::log::{Entries, GROUP, LogState, is_missing_group};
use crate::store::ids::{CouponId, Lane, OrderId, UserId};
use crate::store::{Failure, Stores};

/// Entries read at a time; more would hold up all other clients. An entry may have some hundred claims.
const PAGE: usize = 100;

/// Claims of entries that aren't acknowledged, by sale. May include acknowledged ones in between, which do no harm.
pub struct InFlight {
    claims: HashMap<CouponId, Vec<(UserId, OrderId)>>,
    /// Whether no entry is left for a worker. An entry may hold no claim that can be read.
    pub is_settled: bool,
}

impl InFlight {
    /// A log without entries for a worker.
    pub fn none() -> Self {
        Self { claims: HashMap::new(), is_settled: true }
    }

    /// Reads the log from the oldest pending entry, or after the last delivered one, to its end.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer, or the log can't be read.
    pub async fn read(stores: &Stores, lane: Lane) -> Result<Self, Failure> {
        let mut claims = HashMap::<_, Vec<_>>::new();
        // In this order: an entry delivered between the two replies is either pending or after the last delivered one.
        let state = LogState::of(stores.redis(lane), &stores.keys, lane).await?;
        if state.is_settled() {
            return Ok(Self::none());
        }
        let oldest = oldest_pending(stores, lane).await?;
        let after = || state.delivered.map(|id| format!("({id}"));
        let mut from = oldest.or_else(after).unwrap_or_else(|| "-".to_owned());
        loop {
            let entries = range(stores, lane, &from).await?.0;
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

    pub fn of(&self, coupon: CouponId) -> impl Iterator<Item = (UserId, OrderId)> {
        self.claims.get(&coupon).into_iter().flatten().copied()
    }

    pub fn orders(&self) -> impl Iterator<Item = OrderId> {
        self.claims.values().flatten().map(|(_, order)| *order)
    }

    pub fn coupons(&self) -> impl Iterator<Item = CouponId> {
        self.claims.keys().copied()
    }
}

async fn oldest_pending(stores: &Stores, lane: Lane) -> Result<Option<String>, Failure> {
    let mut command = redis::cmd("XPENDING");
    command.arg(stores.keys.log(lane)).arg(GROUP);
    let summary = stores.redis(lane).query(&command).await;
    let (_, oldest, _, _): (u64, _, Value, Value) = match summary {
        Err(error) if is_missing_group(&error) => return Ok(None),
        summary => summary?,
    };
    Ok(oldest)
}

async fn range(stores: &Stores, lane: Lane, from: &str) -> Result<Entries, Failure> {
    let mut command = redis::cmd("XRANGE");
    command.arg(stores.keys.log(lane)).arg(from).arg("+").arg("COUNT").arg(PAGE);
    Ok(stores.redis(lane).query(&command).await?)
}
