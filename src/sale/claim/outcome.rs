//! What the script says about a claim, and what its user is told.

use std::time::Duration;

use crate::sale::buyers::shards::Shards;
use crate::sale::ids::OrderId;
use crate::sale::order::model::Order;

/// What the script said about one claim.
#[derive(Debug)]
pub enum Reply {
    /// This is the user's answer.
    Decided(ClaimOutcome),
    /// No unit is left; units had come back so many times by then.
    SoldOut {
        /// How often units have come back.
        returns: i64,
    },
    /// The sale isn't in Redis.
    NotLoaded,
    /// The sale has another epoch than the caller's, or a layout that the script doesn't know.
    Stale,
    /// The sale has so many shards, and the call has named those of another number. Only if that was so twice.
    Resharded(Shards),
    /// Redis has lost the user's shard.
    Lost,
}

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
