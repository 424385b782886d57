//! Unpaid orders past their time to be paid.
//!
//! The time counts from the insertion of the row (`created_at`), by Postgres's clock: an outage during which
//! accepted claims wait in the order log takes nothing from anybody. `docs/delay.md` says why a pass over an index
//! and not a timer for each order.
//!
//! An order whose time is over is unpaid until the pass has come to it, and may still be paid until then. Whoever
//! is first wins (`sale/order_moves.rs`).

use std::time::Duration;

use super::Failure;
use super::order_moves::OrderMoves;
use crate::base::limits;

/// Expires orders.
pub struct Expiry {
    moves: OrderMoves,
    /// How long an order may stay unpaid.
    payment_window: Duration,
}

impl Expiry {
    /// Orders may stay unpaid for `payment_window`.
    pub fn new(moves: OrderMoves, payment_window: Duration) -> Self {
        Self { moves, payment_window }
    }

    /// Closes what is due, oldest first, for a bounded time. Returns how many orders it has closed.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer; batches before that are closed.
    pub async fn pass(&self) -> Result<usize, Failure> {
        let mut expired = 0;
        for _ in 0..limits::PASS_BATCHES_MAX {
            let batch = self.moves.expire(self.payment_window, limits::EXPIRY_BATCH).await?;
            expired += batch;
            // What somebody else has in hand is skipped, so a short batch may be followed by a longer one: by
            // the next pass.
            if batch < limits::EXPIRY_BATCH as usize {
                break;
            }
        }
        Ok(expired)
    }
}
