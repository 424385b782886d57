//! One claim, one outcome. A claim on a loaded sale in an open lane never asks Postgres.
//!
//! The script (`lua/claim.lua`) decides; `claim/calls.rs` calls it. This file interprets its replies, and asks other
//! stores if the script can't answer.

use std::sync::Arc;

use crate::claim::calls::ClaimScript;
use crate::claim::memory::Memories;
use crate::claim::outcome::{ClaimOutcome, Reply};
use crate::claim::regular::{RegularClaims, RegularOutcome};
use crate::claim::trace::probe::Probe;
use crate::coupon::load::{Loader, Resolution};
use crate::fence::LaneStates;
use crate::fence::loss::LossAlarm;
use crate::order::write::Orders;
use crate::store::Failure;
use crate::store::fleet::Fleet;
use crate::store::ids::{CouponId, UserId};

pub struct Claims {
    /// Asked first: most claims of a crowd are repeats, or come after the last unit.
    memories: Fleet<Memories>,
    script: Fleet<ClaimScript>,
    /// Asked only when the script can't answer.
    loader: Arc<Loader>,
    /// Read anew only when the script replies that a lane has changed.
    lanes: Arc<LaneStates>,
    /// Raised when Redis has lost a sale.
    loss: Arc<LossAlarm>,
    regular: RegularClaims,
    /// Asked only for archived sales.
    orders: Orders,
}

impl Claims {
    pub fn new(
        memories: Fleet<Memories>,
        script: Fleet<ClaimScript>,
        (loader, lanes, loss): (Arc<Loader>, Arc<LaneStates>, Arc<LossAlarm>),
        regular: RegularClaims,
        orders: Orders,
    ) -> Self {
        Self { memories, script, loader, lanes, loss, regular, orders }
    }

    /// `user` claims one unit of `coupon`. Safe to repeat: the answer to a repeat carries the order
    /// id of the first claim.
    ///
    /// # Errors
    ///
    /// A [`Failure`] means that the outcome is unknown; asking again tells.
    pub async fn claim(&self, coupon: CouponId, user: UserId) -> Result<ClaimOutcome, Failure> {
        self.claim_probed(coupon, user, None).await
    }

    /// As [`claim`](Self::claim); a probe notes the times of the script's call, if there is one.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    pub async fn claim_probed(
        &self,
        coupon: CouponId,
        user: UserId,
        probe: Option<&Arc<Probe>>,
    ) -> Result<ClaimOutcome, Failure> {
        let memories = self.memories.of(coupon.lane());
        if memories.sold_out.refuses(coupon, user) {
            return Ok(ClaimOutcome::SoldOut);
        }
        if let Some(order) = memories.accepted.order_of(coupon, user) {
            return Ok(ClaimOutcome::AlreadyClaimed(order));
        }
        match self.ask(coupon, user, probe).await? {
            Reply::Decided(outcome) => Ok(outcome),
            Reply::SoldOut => Ok(ClaimOutcome::SoldOut),
            // Boxed, because it is rare, and twenty times as large as the memory that every claim needs while it waits.
            reply => Box::pin(self.ask_further(coupon, user, probe, reply)).await,
        }
    }

    /// Deals with a reply that decides nothing: asks the store that knows more, and then perhaps the script again.
    async fn ask_further(
        &self,
        coupon: CouponId,
        user: UserId,
        probe: Option<&Arc<Probe>>,
        reply: Reply,
    ) -> Result<ClaimOutcome, Failure> {
        let reply = match reply {
            Reply::NotLoaded => match self.loader.resolve(coupon).await? {
                Resolution::Loaded => self.ask(coupon, user, probe).await?,
                Resolution::Regular => return self.claim_regular(coupon, user).await,
                Resolution::Archived => return self.claim_archived(coupon, user).await,
                Resolution::Unknown => return Ok(ClaimOutcome::NotFound),
            },
            Reply::Stale => {
                self.lanes.refresh().await?;
                self.ask(coupon, user, probe).await?
            }
            Reply::Recovering => match self.open_after_all(coupon, user, probe).await? {
                Reply::Recovering => return self.claim_elsewhere(coupon, user).await,
                reply => reply,
            },
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
            Reply::Recovering => Err(self.lanes.suspect(coupon.lane())),
            Reply::Stale | Reply::Resharded(_) => {
                // A Redis that went back in time may have an archived sale again. No recovery builds it, so it keeps
                // its old epoch.
                if self.loader.resolve(coupon).await? == Resolution::Archived {
                    return self.claim_archived(coupon, user).await;
                }
                self.lanes.suspect_sale(coupon);
                Err(Failure::Stale(coupon))
            }
        }
    }

    /// Asks the script. If this process doesn't know the lane to be open, the reply is [`Reply::Recovering`]. If the
    /// script can't read the sale, the leader checks it.
    async fn ask(
        &self,
        coupon: CouponId,
        user: UserId,
        probe: Option<&Arc<Probe>>,
    ) -> Result<Reply, Failure> {
        match self.script.of(coupon.lane()).ask(coupon, user, probe).await {
            Err(failure) if failure.is_recovering() => Ok(Reply::Recovering),
            Err(failure) if failure.is_of_item() => {
                self.lanes.suspect_sale(coupon);
                Err(failure)
            }
            told => told,
        }
    }

    /// Reads the states of the lanes from Postgres, and asks the script once more.
    async fn open_after_all(
        &self,
        coupon: CouponId,
        user: UserId,
        probe: Option<&Arc<Probe>>,
    ) -> Result<Reply, Failure> {
        self.lanes.refresh().await?;
        self.ask(coupon, user, probe).await
    }

    /// Claims on a coupon of a closed lane, if the lane isn't needed for that.
    async fn claim_elsewhere(
        &self,
        coupon: CouponId,
        user: UserId,
    ) -> Result<ClaimOutcome, Failure> {
        match self.loader.resolve(coupon).await? {
            Resolution::Regular => self.claim_regular(coupon, user).await,
            Resolution::Archived => self.claim_archived(coupon, user).await,
            Resolution::Unknown => Ok(ClaimOutcome::NotFound),
            Resolution::Loaded => Err(self.lanes.suspect(coupon.lane())),
        }
    }

    async fn claim_regular(&self, coupon: CouponId, user: UserId) -> Result<ClaimOutcome, Failure> {
        Ok(match self.regular.claim(coupon, user).await? {
            RegularOutcome::Created(order) => ClaimOutcome::Created(Box::new(order)),
            RegularOutcome::AlreadyClaimed(order) => ClaimOutcome::AlreadyClaimed(order),
            RegularOutcome::TooManyClosed(wait) => ClaimOutcome::TooManyClosed(wait),
            RegularOutcome::Paused => ClaimOutcome::Paused,
            RegularOutcome::Ended => ClaimOutcome::Ended,
        })
    }

    /// A repeat finds its order even after the sale has left Redis.
    async fn claim_archived(
        &self,
        coupon: CouponId,
        user: UserId,
    ) -> Result<ClaimOutcome, Failure> {
        let live = self.orders.live_of(coupon, user).await?;
        Ok(live.map_or(ClaimOutcome::Ended, ClaimOutcome::AlreadyClaimed))
    }
}
