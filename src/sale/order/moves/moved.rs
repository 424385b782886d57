//! The outcome of a move.

use crate::sale::order::model::{Order, OrderStatus};

/// Outcome of a request to move an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The order has been moved there: by this call, or before.
    There(Box<Order>),
    /// The user has no such order.
    NotFound,
    /// The order has another status, from which no way leads to the requested one.
    Impossible {
        /// Present status.
        from: OrderStatus,
        /// Requested status.
        to: OrderStatus,
    },
}
