//! One claim: one id, one script call, one outcome. No Postgres in sight.
//!
//! The script (`lua/claim.lua`) decides; this file asks it and translates. It takes a list of claims and
//! answers a list, though one claim is all that is sent for now.

use std::sync::Arc;
use std::time::Duration;

use super::Failure;
use super::backlog::Backlog;
use super::ids::{CouponId, OrderId, UserId};
use super::keys::Keys;
use super::order::{Order, Orders};
use super::regular::{RegularClaims, RegularOutcome};
use super::warm_up::{Resolution, WarmUp};
use crate::kit::id::IdGenerator;
use crate::kit::redis::Redis;
use crate::kit::script::Script;

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
    /// There is a unit, but too many accepted claims wait to be written. Nothing was taken.
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
pub const STATUSES: [Status; 10] = [
    Status { reply: "ACCEPTED", http: 202, code: "accepted" },
    Status { reply: "ALREADY_CLAIMED", http: 409, code: "already_claimed" },
    Status { reply: "NOT_STARTED", http: 409, code: "sale_not_started" },
    Status { reply: "PAUSED", http: 409, code: "sale_paused" },
    Status { reply: "ENDED", http: 410, code: "sale_ended" },
    Status { reply: "SOLD_OUT", http: 410, code: "sold_out" },
    Status { reply: "OVERLOADED", http: 503, code: "overloaded" },
    // What is left of it once warm_up has found no such coupon.
    Status { reply: "NOT_LOADED", http: 404, code: "coupon_not_found" },
    // What is left of it once the epoch has been read again.
    Status { reply: "STALE", http: 503, code: "unavailable" },
    Status { reply: "LOST", http: 503, code: "unavailable" },
];

/// A regular coupon's order; the script has no part in it.
const CREATED: Status = Status { reply: "", http: 201, code: "created" };

/// Takes claims.
pub struct Claims {
    redis: Redis,
    keys: Keys,
    script: Script<3>,
    order_ids: Arc<IdGenerator>,
    /// Says whether more claims may be accepted; looked at, never asked.
    backlog: Arc<Backlog>,
    /// Asked only when the script doesn't know the coupon.
    warm_up: Arc<WarmUp>,
    /// Asked only for regular coupons.
    regular: RegularClaims,
    /// Asked only for archived sales.
    orders: Orders,
}

/// What the script said about one claim.
enum Reply {
    Decided(ClaimOutcome),
    NotLoaded,
    Stale,
    Lost,
}

impl Claims {
    /// Puts the parts together.
    pub fn new(
        redis: Redis,
        keys: Keys,
        order_ids: Arc<IdGenerator>,
        backlog: Arc<Backlog>,
        warm_up: Arc<WarmUp>,
        regular: RegularClaims,
        orders: Orders,
    ) -> Self {
        let script = Script::new(include_str!("../../lua/claim.lua"));
        Self { redis, keys, script, order_ids, backlog, warm_up, regular, orders }
    }

    /// `user` claims one unit of `coupon`. Safe to repeat: the answer to a repeat carries the order
    /// id of the first claim.
    ///
    /// # Errors
    ///
    /// A [`Failure`] means that the outcome is unknown; asking again tells.
    pub async fn claim(&self, coupon: CouponId, user: UserId) -> Result<ClaimOutcome, Failure> {
        let reply = match self.ask(coupon, user).await? {
            Reply::Decided(outcome) => return Ok(outcome),
            Reply::NotLoaded => match self.warm_up.resolve(coupon).await? {
                Resolution::Loaded => self.ask(coupon, user).await?,
                Resolution::Regular => return self.claim_regular(coupon, user).await,
                Resolution::Archived => return self.claim_archived(coupon, user).await,
                Resolution::Unknown => return Ok(ClaimOutcome::NotFound),
            },
            Reply::Stale => {
                self.warm_up.refresh_epoch().await?;
                self.ask(coupon, user).await?
            }
            Reply::Lost => Reply::Lost,
        };
        match reply {
            Reply::Decided(outcome) => Ok(outcome),
            Reply::NotLoaded | Reply::Lost => Err(self.warm_up.data_lost(coupon)),
            Reply::Stale => Err(Failure::Stale(coupon)),
        }
    }

    async fn ask(&self, coupon: CouponId, user: UserId) -> Result<Reply, Failure> {
        let link = self.redis.link().await?;
        let order = self.order_ids.next(&link).await?;
        let (coupon_key, buyers_key, log_key) =
            (self.keys.coupon(coupon), self.keys.buyers(coupon), self.keys.log(coupon.lane()));
        let has_room = i64::from(self.backlog.has_room());
        let arguments = [coupon.get(), self.warm_up.epoch(), has_room, user.get(), order];
        let replies: Vec<String> =
            self.script.run(&link, [&coupon_key, &buyers_key, &log_key], &arguments[..]).await?;
        decode(&replies)
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
            Self::Overloaded => "OVERLOADED",
            Self::NotFound => "NOT_LOADED",
        };
        STATUSES.iter().find(|status| status.reply == reply).expect("each outcome has a row")
    }
}

/// Reads the reply to one claim: a code and its detail.
fn decode(replies: &[String]) -> Result<Reply, Failure> {
    let unknown = || Failure::UnknownReply(replies.join(" "));
    let [code, detail] = replies else {
        return Err(unknown());
    };
    let order = || detail.parse::<OrderId>().map_err(|_| unknown());
    let outcome = match code.as_str() {
        "ACCEPTED" => ClaimOutcome::Accepted(order()?),
        "ALREADY_CLAIMED" => ClaimOutcome::AlreadyClaimed(order()?),
        "NOT_STARTED" => {
            ClaimOutcome::NotStarted(Duration::from_millis(detail.parse().map_err(|_| unknown())?))
        }
        "PAUSED" => ClaimOutcome::Paused,
        "ENDED" => ClaimOutcome::Ended,
        "SOLD_OUT" => ClaimOutcome::SoldOut,
        "OVERLOADED" => ClaimOutcome::Overloaded,
        "NOT_LOADED" => return Ok(Reply::NotLoaded),
        "STALE" => return Ok(Reply::Stale),
        "LOST" => return Ok(Reply::Lost),
        _ => return Err(unknown()),
    };
    Ok(Reply::Decided(outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_what_the_script_s_reply_leads_to() {
        for row in &STATUSES {
            let detail = if row.reply == "NOT_STARTED" { "1500" } else { "7" };
            match decode(&[row.reply.to_owned(), detail.to_owned()]) {
                Ok(Reply::Decided(outcome)) => assert_eq!(outcome.status(), row),
                Ok(Reply::NotLoaded) => assert_eq!(ClaimOutcome::NotFound.status(), row),
                Ok(Reply::Stale | Reply::Lost) => {
                    assert_eq!((row.http, row.code), (503, "unavailable"))
                }
                Err(failure) => panic!("{row:?}: {failure}"),
            }
        }
    }

    #[test]
    fn a_reply_that_this_version_does_not_know_is_a_failure() {
        for reply in [&["MAYBE", ""][..], &["ACCEPTED", "x"], &["ACCEPTED"], &[]] {
            let reply: Vec<String> = reply.iter().map(|part| (*part).to_owned()).collect();
            assert!(matches!(decode(&reply), Err(Failure::UnknownReply(_))), "{reply:?}");
        }
    }
}
