//! One claim, one outcome. No Postgres in sight.
//!
//! The script (`lua/claim.lua`) decides; `sale/claim_script.rs` asks it, and this file says what its replies
//! mean, and whom to ask when it doesn't know the coupon.

use std::sync::Arc;
use std::time::Duration;

use super::Failure;
use super::claim_script::{ClaimScript, Reply};
use super::ids::{CouponId, OrderId, UserId};
use super::order::{Order, Orders};
use super::regular::{RegularClaims, RegularOutcome};
use super::sold_out::SoldOutSales;
use super::warm_up::{Resolution, WarmUp};

/// What a user is told about a claim. Everything here is an ordinary answer; 99 of 100 are refusals.
#[derive(Debug)]
pub enum ClaimOutcome {
    /// A unit is theirs, and the order is in the log.
    Accepted(OrderId),
    /// The order of a regular coupon; it is in Postgres.
    Created(Box<Order>),
    /// They had claimed before, by this order; a repeat never takes a second unit.
    AlreadyClaimed(OrderId),
    /// The window opens after this time.
    NotStarted(Duration),
    /// Claims are suspended.
    Paused,
    /// The window has closed.
    Ended,
    /// No unit is left.
    SoldOut,
    /// There is a unit, but the user holds as many unpaid orders as they may.
    TooManyUnpaid,
    /// Too many claims wait to be carried out, or too many accepted ones to be written. This one was not carried out.
    Overloaded,
    /// There is no such coupon.
    NotFound,
}

/// How one reply of the claim script is answered over HTTP.
#[derive(Debug, PartialEq, Eq)]
pub struct Status {
    /// Code in the script's reply.
    pub reply: &'static str,
    /// HTTP status.
    pub http: u16,
    /// `code` of the problem body, and the metric's label.
    pub code: &'static str,
}

/// Every reply code of `lua/claim.lua`, once. `tests/tidy.rs` compares the two sets.
pub const STATUSES: [Status; 12] = [
    Status { reply: "ACCEPTED", http: 202, code: "accepted" },
    Status { reply: "ALREADY_CLAIMED", http: 409, code: "already_claimed" },
    Status { reply: "NOT_STARTED", http: 409, code: "sale_not_started" },
    Status { reply: "PAUSED", http: 409, code: "sale_paused" },
    Status { reply: "ENDED", http: 410, code: "sale_ended" },
    Status { reply: "SOLD_OUT", http: 410, code: "sold_out" },
    Status { reply: "TOO_MANY_UNPAID", http: 409, code: "too_many_unpaid_orders" },
    Status { reply: "OVERLOADED", http: 503, code: "overloaded" },
    // What is left of it once warm_up has found no such coupon.
    Status { reply: "NOT_LOADED", http: 404, code: "coupon_not_found" },
    // What is left of it once the epoch has been read again.
    Status { reply: "STALE", http: 503, code: "unavailable" },
    // What is left of it once the script has been asked again.
    Status { reply: "RESHARDED", http: 503, code: "unavailable" },
    Status { reply: "LOST", http: 503, code: "unavailable" },
];

/// A regular coupon's order; the script has no part in it.
const CREATED: Status = Status { reply: "", http: 201, code: "created" };

/// Takes claims.
pub struct Claims {
    /// Looked at first: most claims of a crowd come after the last unit.
    sold_out: Arc<SoldOutSales>,
    script: ClaimScript,
    /// Asked only when the script doesn't know the coupon, or the epoch has changed.
    warm_up: Arc<WarmUp>,
    /// Asked only for regular coupons.
    regular: RegularClaims,
    /// Asked only for archived sales.
    orders: Orders,
}

impl Claims {
    /// Puts the parts together.
    pub fn new(
        sold_out: Arc<SoldOutSales>,
        script: ClaimScript,
        warm_up: Arc<WarmUp>,
        regular: RegularClaims,
        orders: Orders,
    ) -> Self {
        Self { sold_out, script, warm_up, regular, orders }
    }

    /// `user` claims one unit of `coupon`. Safe to repeat: the answer to a repeat carries the order
    /// id of the first claim.
    ///
    /// # Errors
    ///
    /// A [`Failure`] means that the outcome is unknown; asking again tells.
    pub async fn claim(&self, coupon: CouponId, user: UserId) -> Result<ClaimOutcome, Failure> {
        if self.sold_out.refuses(coupon, user) {
            return Ok(ClaimOutcome::SoldOut);
        }
        match self.script.ask(coupon, user).await? {
            Reply::Decided(outcome) => Ok(outcome),
            Reply::SoldOut { .. } => Ok(ClaimOutcome::SoldOut),
            // In a box, because it is rare, and twenty times as large as what every claim needs while it waits.
            reply => Box::pin(self.ask_further(coupon, user, reply)).await,
        }
    }

    /// The script couldn't tell: whoever knows more is asked, and then perhaps the script again.
    async fn ask_further(
        &self,
        coupon: CouponId,
        user: UserId,
        reply: Reply,
    ) -> Result<ClaimOutcome, Failure> {
        let reply = match reply {
            Reply::NotLoaded => match self.warm_up.resolve(coupon).await? {
                Resolution::Loaded => self.script.ask(coupon, user).await?,
                Resolution::Regular => return self.claim_regular(coupon, user).await,
                Resolution::Archived => return self.claim_archived(coupon, user).await,
                Resolution::Unknown => return Ok(ClaimOutcome::NotFound),
            },
            Reply::Stale => {
                self.warm_up.refresh_epoch().await?;
                self.script.ask(coupon, user).await?
            }
            reply => reply,
        };
        match reply {
            Reply::Decided(outcome) => Ok(outcome),
            Reply::SoldOut { .. } => Ok(ClaimOutcome::SoldOut),
            Reply::NotLoaded => match self.warm_up.missing(coupon).await? {
                Resolution::Archived => self.claim_archived(coupon, user).await,
                _ => Err(self.warm_up.data_lost(coupon)),
            },
            Reply::Lost => Err(self.warm_up.data_lost(coupon)),
            Reply::Stale | Reply::Resharded(_) => Err(Failure::Stale(coupon)),
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

impl ClaimOutcome {
    /// Every code that [`status`](Self::status) can have.
    pub fn codes() -> impl Iterator<Item = &'static str> {
        STATUSES.iter().chain([&CREATED]).map(|status| status.code)
    }

    /// How it is answered.
    pub fn status(&self) -> &'static Status {
        let reply = match self {
            Self::Created(_) => return &CREATED,
            Self::Accepted(_) => "ACCEPTED",
            Self::AlreadyClaimed(_) => "ALREADY_CLAIMED",
            Self::NotStarted(_) => "NOT_STARTED",
            Self::Paused => "PAUSED",
            Self::Ended => "ENDED",
            Self::SoldOut => "SOLD_OUT",
            Self::TooManyUnpaid => "TOO_MANY_UNPAID",
            Self::Overloaded => "OVERLOADED",
            Self::NotFound => "NOT_LOADED",
        };
        STATUSES.iter().find(|status| status.reply == reply).expect("each outcome has a row")
    }
}
