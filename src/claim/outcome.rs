//! Replies of the claim script, and answers to users.

use std::time::Duration;

use crate::coupon::buyers::shards::Shards;
use crate::order::model::Order;
use crate::store::ids::OrderId;

/// Reply of the script about one claim.
#[derive(Debug)]
pub enum Reply {
    Decided(ClaimOutcome),
    SoldOut,
    /// The sale isn't in Redis, or is still being loaded.
    NotLoaded,
    /// The lane or the sale has another epoch than the caller's.
    Stale,
    /// The lane isn't open on this server (see `V` in `lua/claim.lua`).
    Recovering,
    /// The sale has these shards, and the call has named others.
    Resharded(Shards),
    /// Redis has lost the user's shard, or the sale's stock.
    Lost,
}

impl Reply {
    /// The user's order, if the user has a unit.
    pub fn order(&self) -> Option<OrderId> {
        match self {
            Self::Decided(ClaimOutcome::Accepted(order) | ClaimOutcome::AlreadyClaimed(order)) => {
                Some(*order)
            }
            _ => None,
        }
    }
}

/// Answer to a user about a claim. All are ordinary answers; 99 of 100 are refusals.
#[derive(Debug)]
pub enum ClaimOutcome {
    /// The user has a unit, and the order is in the log.
    Accepted(OrderId),
    /// The order is in Postgres: it is for a regular coupon, or the claim on a sale has waited for its row.
    Created(Box<Order>),
    /// The user has claimed before, by this order. A repeat never takes a second unit.
    AlreadyClaimed(OrderId),
    /// The window opens after this time.
    NotStarted(Duration),
    /// Claims are suspended.
    Paused,
    /// The coupon has ended, or the window has closed.
    Ended,
    SoldOut,
    /// A unit is left, but the user holds as many unpaid orders as allowed.
    TooManyUnpaid,
    /// The user has closed as many orders of this regular coupon as allowed; the next claim is possible after this
    /// time.
    TooManyClosed(Duration),
    /// Too many claims wait to be carried out, or too many accepted ones to be written. This one was not carried out.
    Overloaded,
    NotFound,
}

/// How an outcome is told to the user.
#[derive(Debug, PartialEq, Eq)]
pub struct Status {
    pub http: u16,
    /// `code` of the problem body, and label of the metric.
    pub code: &'static str,
}

const ACCEPTED: Status = Status { http: 202, code: "accepted" };
const CREATED: Status = Status { http: 201, code: "created" };
const ALREADY_CLAIMED: Status = Status { http: 409, code: "already_claimed" };
const NOT_STARTED: Status = Status { http: 409, code: "sale_not_started" };
const PAUSED: Status = Status { http: 409, code: "sale_paused" };
const ENDED: Status = Status { http: 410, code: "sale_ended" };
const SOLD_OUT: Status = Status { http: 410, code: "sold_out" };
const TOO_MANY_UNPAID: Status = Status { http: 409, code: "too_many_unpaid_orders" };
const TOO_MANY_CLOSED: Status = Status { http: 409, code: "too_many_closed_orders" };
const OVERLOADED: Status = Status { http: 503, code: "overloaded" };
const NOT_FOUND: Status = Status { http: 404, code: "coupon_not_found" };

/// Code of a claim whose outcome is unknown, because something is broken.
pub const UNAVAILABLE: &str = "unavailable";

impl ClaimOutcome {
    /// The labels of the claims metric: the code of each outcome, and [`UNAVAILABLE`].
    pub fn codes() -> impl Iterator<Item = &'static str> {
        let statuses = [
            ACCEPTED,
            CREATED,
            ALREADY_CLAIMED,
            NOT_STARTED,
            PAUSED,
            ENDED,
            SOLD_OUT,
            TOO_MANY_UNPAID,
            TOO_MANY_CLOSED,
            OVERLOADED,
            NOT_FOUND,
        ];
        statuses.into_iter().map(|status| status.code).chain([UNAVAILABLE])
    }

    pub fn status(&self) -> Status {
        match self {
            Self::Accepted(_) => ACCEPTED,
            Self::Created(_) => CREATED,
            Self::AlreadyClaimed(_) => ALREADY_CLAIMED,
            Self::NotStarted(_) => NOT_STARTED,
            Self::Paused => PAUSED,
            Self::Ended => ENDED,
            Self::SoldOut => SOLD_OUT,
            Self::TooManyUnpaid => TOO_MANY_UNPAID,
            Self::TooManyClosed(_) => TOO_MANY_CLOSED,
            Self::Overloaded => OVERLOADED,
            Self::NotFound => NOT_FOUND,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_has_the_order_of_a_user_who_has_a_unit() {
        let order = OrderId::new(7).expect("a positive number");
        for (reply, told) in [
            (Reply::Decided(ClaimOutcome::Accepted(order)), Some(order)),
            (Reply::Decided(ClaimOutcome::AlreadyClaimed(order)), Some(order)),
            (Reply::Decided(ClaimOutcome::Paused), None),
            (Reply::SoldOut, None),
            (Reply::Lost, None),
        ] {
            assert_eq!(reply.order(), told, "{reply:?}");
        }
    }
}
