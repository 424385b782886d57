//! Contents of both stores at the end.

use std::collections::BTreeMap;

use super::unit::Ms;

/// A sale, as both stores have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaleFacts {
    pub coupon: i64,
    /// Units on offer when the sale was created.
    pub first_total: i64,
    /// Units on offer, by Postgres.
    pub total: i64,
    /// Live orders, as Postgres counts them beside its rows.
    pub sold: i64,
    /// The sale in Redis, read by one script; `None` if it is not there.
    pub redis: Option<RedisSale>,
}

/// A sale in Redis at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisSale {
    /// Units on offer.
    pub total: i64,
    /// Units left.
    pub stock: i64,
    /// Shards that are not there.
    pub shards_missing: i64,
    /// User -> order of the live claim.
    pub buyers: BTreeMap<i64, i64>,
}

/// A row of `orders`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub order: i64,
    pub coupon: i64,
    pub user: i64,
    /// True for an order that holds a unit.
    pub is_live: bool,
    /// Time of the insertion.
    pub created: Ms,
}

/// A row of `stock_returns` that gives a unit back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Return {
    pub order: i64,
    pub coupon: i64,
    pub user: i64,
    /// Time at which the unit was back; `None` while it is on its way.
    pub done: Option<Ms>,
}

/// A row of `dead_letters`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Reason, as the service gives it.
    pub reason: String,
    /// Coupon, user and order, where the entry could be read.
    pub claim: Option<(i64, i64, i64)>,
    /// True for a letter that an operator has still to look at.
    pub is_open: bool,
}

/// A claim that a recovery could not keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    pub coupon: i64,
    pub user: i64,
    /// The order that the user was told.
    pub order: i64,
    /// `superseded`, `accepted_without_unit` or `refused`.
    pub reason: String,
}

/// A row of `recoveries`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryRow {
    pub lane: i64,
    /// Time of the closure.
    pub closed: Ms,
    /// Time of the opening; `None` if another recovery took its place.
    pub opened: Option<Ms>,
    /// Living processes that handed nothing in within the time.
    pub absent: i64,
    /// Claims that could not be kept.
    pub lost: Vec<Lost>,
}

/// A lane, as both stores have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneFacts {
    pub lane: i64,
    /// Epoch and state by Postgres.
    pub postgres: (i64, String),
    /// Epoch and state by Redis.
    pub redis: (i64, String),
    /// Orders that the lane has ever promised, by Redis.
    pub promised: i64,
    /// Those of acknowledged entries.
    pub written: i64,
    /// Entries delivered and not acknowledged.
    pub pending: i64,
    /// Of these, entries that the log does not have any more.
    pub pending_deleted: Vec<String>,
    /// Entries that no worker has read.
    pub unread: i64,
}
