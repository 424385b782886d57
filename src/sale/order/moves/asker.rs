//! Source of a request to move an order: its buyer, or an administrator for the buyer.

use serde_json::json;
use sqlx::PgConnection;

use crate::sale::audit::{self, Action, Actor, Event};
use crate::sale::ids::{OrderId, UserId};
use crate::sale::order::model::OrderStatus;

/// Source of a request to move an order.
#[derive(Clone, Debug)]
pub enum Asker {
    /// The buyer, who knows no orders of others.
    Buyer(UserId),
    /// An administrator, for the buyer; entered in the book of changes.
    Staff {
        /// The administrator.
        by: Actor,
        /// Reason, in words.
        reason: String,
    },
}

impl Asker {
    /// The user whose orders alone may be moved; none for the staff.
    pub(in crate::sale) fn buyer(&self) -> Option<UserId> {
        match self {
            Self::Buyer(user) => Some(*user),
            Self::Staff { .. } => None,
        }
    }

    /// Enters a move by the staff in the book of changes.
    pub(in crate::sale) async fn note(
        &self,
        tx: &mut PgConnection,
        action: Action,
        order: OrderId,
        (from, to): (OrderStatus, OrderStatus),
    ) -> sqlx::Result<()> {
        let Self::Staff { by, reason } = self else {
            return Ok(());
        };
        let event = Event::of(action, order.get())
            .before(json!({ "status": from }))
            .after(json!({ "status": to, "reason": reason }));
        audit::note(tx, by, event).await
    }
}
