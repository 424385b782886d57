//! The outcome of a move.

use std::time::Duration;

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
    /// The buyer has closed as many orders of this flash coupon as may be; the next one can be cancelled after this time.
    TooManyClosed(Duration),
}
