//! Answers to an operator who asks for a sale to be archived.

use serde::Serialize;
use utoipa::ToSchema;

use crate::store::ids::CouponId;

#[derive(Debug)]
pub enum ArchiveOutcome {
    /// Postgres answers for the sale, and Redis no longer has it. This call has done that, or an earlier one.
    Archived(Archived),
    /// The sale isn't archived, and nothing has changed.
    Refused(ArchiveRefusal),
}

/// A sale that has been archived, and what was given up for it; nothing if it had been archived before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Archived {
    /// The coupon.
    pub coupon_id: CouponId,
    /// Open dead letters that have been discarded.
    pub dead_letters_closed: i64,
    /// Units on their way back that will no longer return to Redis.
    pub stock_returns_closed: i64,
    /// Buyers that Redis had; null if that could not be read.
    pub buyers_dropped: Option<i64>,
    /// Live orders, which stay; null if the sale could not be read. If Redis had more buyers than these, the others are
    /// told that they never claimed.
    pub live_orders: Option<i64>,
}

/// Reasons for not archiving a sale, in words for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveRefusal {
    #[error("there is no coupon with this id")]
    NotFound,
    #[error("a regular coupon has no sale, and nothing in Redis")]
    NoSale,
    /// Claims may still be accepted.
    #[error("the sale hasn't ended: end the coupon first, which is final")]
    NotEnded,
    #[error("Redis has never had this sale, so there is nothing to archive")]
    NotLoaded,
    /// Accepted claims wait to be written.
    #[error(
        "{0} claims of the sale are on their way to Postgres: ask again when a worker has written them"
    )]
    InFlight(usize),
    /// Something about the sale is open, and its loss wasn't accepted.
    #[error("the sale isn't settled: {}. Put that right, or accept the loss (`accept_loss`), which gives it up", in_words(.0))]
    NotSettled(Vec<String>),
}

fn in_words(obstacles: &[String]) -> String {
    match obstacles {
        [] => "something about it has changed just now".to_owned(),
        obstacles => obstacles.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_each_obstacle() {
        for (obstacles, words) in [
            (&[][..], "isn't settled: something about it has changed just now. Put"),
            (&["a"], "isn't settled: a. Put"),
            (&["a", "b"], "isn't settled: a; b. Put"),
        ] {
            let obstacles = obstacles.iter().map(|words| (*words).to_owned()).collect();
            let told = ArchiveRefusal::NotSettled(obstacles).to_string();
            assert!(told.contains(words), "{told}");
        }
    }
}
