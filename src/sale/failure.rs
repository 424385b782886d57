//! What can break underneath the business.

use std::sync::Arc;

use redis::RedisError;

use super::ids::CouponId;
use crate::kit::id::IdError;

/// Something is broken, and whether the request took effect is unknown: asking again is safe and
/// tells. Never a refusal; those are values.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Redis didn't answer in time, or not as it should.
    #[error("Redis: {0}")]
    Redis(#[from] RedisError),
    /// Postgres didn't answer in time, or not as it should.
    #[error("Postgres: {0}")]
    Postgres(#[from] sqlx::Error),
    /// There is no order id to give.
    #[error(transparent)]
    Id(#[from] IdError),
    /// Postgres knows that this sale was in Redis, and it isn't, or not all of it: what else is missing
    /// is unknown.
    #[error(
        "coupon {0}, or part of it, is missing in Redis, which has lost data; it stays closed until it is rebuilt"
    )]
    DataLost(CouponId),
    /// Redis holds this sale with another epoch or layout than this process believes in.
    #[error("coupon {0} has another epoch or layout in Redis than in Postgres")]
    Stale(CouponId),
    /// Somebody else has held the buyer's lock for too long.
    #[error("the buyer's lock is held elsewhere")]
    LockBusy,
    /// The user's unpaid order was closed while a new one was being made, more than once.
    #[error("the user's order of coupon {0} kept changing")]
    OrderMoved(CouponId),
    /// A claim shared a call with others, and there was no reply in time.
    #[error("no reply to a claim within its time")]
    NoReply,
    /// A script answered something that this version doesn't know.
    #[error("a script answered {0:?}, which this version doesn't know")]
    UnknownReply(String),
    /// What a caller learns who waited for somebody else's attempt.
    #[error(transparent)]
    Shared(#[from] Arc<Failure>),
}
