//! Capabilities that the board reads.

use std::sync::Arc;

use crate::base::clock::Clock;
use crate::coupon::create::Coupons;
use crate::fence::LaneStates;
use crate::log::backlog::Backlog;
use crate::store::Stores;
use crate::store::durability::Durability;
use crate::store::fleet::Fleet;

/// Capabilities that the board reads.
pub struct Sources {
    /// The stores.
    pub stores: Stores,
    /// Coupons, with their sales.
    pub coupons: Arc<Coupons>,
    /// States of the logs.
    pub backlog: Arc<Backlog>,
    /// States of the lanes.
    pub lanes: Arc<LaneStates>,
    /// Level at which claims are confirmed.
    pub durability: Fleet<Arc<Durability>>,
    /// Tells the time of events.
    pub clock: Clock,
}
