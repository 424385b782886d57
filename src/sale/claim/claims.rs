//! One claim, one outcome. No Postgres in sight.
//!
//! The script (`lua/claim.lua`) decides; `sale/claim/calls.rs` asks it. This file gives its replies their meaning,
//! and asks further stores when the script doesn't know the coupon.

use std::sync::Arc;

use crate::sale::Failure;
use crate::sale::claim::calls::ClaimScript;
use crate::sale::claim::memory::Memories;
use crate::sale::claim::outcome::{ClaimOutcome, Reply};
use crate::sale::claim::regular::{RegularClaims, RegularOutcome};
use crate::sale::coupon::load::{Loader, Resolution};
use crate::sale::epoch::Epoch;
use crate::sale::ids::{CouponId, UserId};
use crate::sale::loss::LossAlarm;
use crate::sale::order::write::Orders;

/// Takes claims.
pub struct Claims {
    /// Looked at first: most claims of a crowd come after the last unit, or again.
    memories: Memories,
    script: ClaimScript,
    /// Asked only when the script doesn't know the coupon.
    loader: Arc<Loader>,
    /// Asked only when the script says that it has changed.
    epoch: Arc<Epoch>,
    /// Raised when Redis has lost a sale.
    loss: Arc<LossAlarm>,
    /// Asked only for regular coupons.
    regular: RegularClaims,
    /// Asked only for archived sales.
    orders: Orders,
}

impl Claims {
    /// Claims with these parts.
    pub fn new(
        memories: Memories,
        script: ClaimScript,
        loader: Arc<Loader>,
        epoch: Arc<Epoch>,
        loss: Arc<LossAlarm>,
        regular: RegularClaims,
        orders: Orders,
    ) -> Self {
        Self { memories, script, loader, epoch, loss, regular, orders }
    }

    /// `user` claims one unit of `coupon`. Safe to repeat: the answer to a repeat carries the order
    /// id of the first claim.
    ///
    /// # Errors
    ///
    /// A [`Failure`] means that the outcome is unknown; asking again tells.
    pub async fn claim(&self, coupon: CouponId, user: UserId) -> Result<ClaimOutcome, Failure> {
        if self.memories.sold_out.refuses(coupon, user) {
            return Ok(ClaimOutcome::SoldOut);
        }
        if let Some(order) = self.memories.promised.order_of(coupon, user) {
            return Ok(ClaimOutcome::AlreadyClaimed(order));
        }
        match self.script.ask(coupon, user).await? {
            Reply::Decided(outcome) => Ok(outcome),
            Reply::SoldOut => Ok(ClaimOutcome::SoldOut),
            // In a box, because it is rare, and twenty times as large as the memory that every claim needs while it
            // waits.
            reply => Box::pin(self.ask_further(coupon, user, reply)).await,
        }
    }

    /// Deals with a reply that decides nothing: the store that knows more is asked, and then perhaps the script
    /// again.
    async fn ask_further(
        &self,
        coupon: CouponId,
        user: UserId,
        reply: Reply,
    ) -> Result<ClaimOutcome, Failure> {
        let reply = match reply {
            Reply::NotLoaded => match self.loader.resolve(coupon).await? {
                Resolution::Loaded => self.script.ask(coupon, user).await?,
                Resolution::Regular => return self.claim_regular(coupon, user).await,
                Resolution::Archived => return self.claim_archived(coupon, user).await,
                Resolution::Unknown => return Ok(ClaimOutcome::NotFound),
            },
            Reply::Stale => {
                self.epoch.refresh().await?;
                self.script.ask(coupon, user).await?
            }
            reply => reply,
        };
        match reply {
            Reply::Decided(outcome) => Ok(outcome),
            Reply::SoldOut => Ok(ClaimOutcome::SoldOut),
            Reply::NotLoaded => match self.loader.missing(coupon).await? {
                Resolution::Archived => self.claim_archived(coupon, user).await,
                Resolution::Loaded | Resolution::Regular | Resolution::Unknown => {
                    Err(self.loss.raise(coupon))
                }
            },
            Reply::Lost => Err(self.loss.raise(coupon)),
            Reply::Stale | Reply::Resharded(_) | Reply::LogOfCalls => Err(Failure::Stale(coupon)),
        }
    }

    async fn claim_regular(&self, coupon: CouponId, user: UserId) -> Result<ClaimOutcome, Failure> {
        Ok(match self.regular.claim(coupon, user).await? {
            RegularOutcome::Created(order) => ClaimOutcome::Created(Box::new(order)),
            RegularOutcome::AlreadyClaimed(order) => ClaimOutcome::AlreadyClaimed(order),
            RegularOutcome::Paused => ClaimOutcome::Paused,
            RegularOutcome::Ended => ClaimOutcome::Ended,
        })
    }

    /// A repeat finds its order also after the sale has left Redis.
    async fn claim_archived(
        &self,
        coupon: CouponId,
        user: UserId,
    ) -> Result<ClaimOutcome, Failure> {
        let live = self.orders.live_of(coupon, user).await?;
        Ok(live.map_or(ClaimOutcome::Ended, ClaimOutcome::AlreadyClaimed))
    }
}
