//! What the board reads.

use std::sync::Arc;

use crate::base::clock::Clock;
use crate::coupon::create::Coupons;
use crate::fence::LaneStates;
use crate::log::backlog::Backlog;
use crate::store::Stores;
use crate::store::durability::Durability;
use crate::store::fleet::Fleet;

pub struct Sources {
    pub stores: Stores,
    pub coupons: Arc<Coupons>,
    pub backlog: Arc<Backlog>,
    pub lanes: Arc<LaneStates>,
    /// Durability of claims, for each Redis server.
    pub durability: Fleet<Arc<Durability>>,
    pub clock: Clock,
}
