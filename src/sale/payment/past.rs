//! Payments of orders that are deleted.

use sqlx::{PgConnection, PgPool};

use crate::base::limits;
use crate::kit::postgres;
use crate::sale::ids::{OrderId, order_id};

/// Deletes the payments of these orders, which are locked. One that goes back or is held has come after the look at the
/// orders: it stays, and takes its way without them.
pub async fn delete(tx: &mut PgConnection, orders: &[i64]) -> sqlx::Result<()> {
    sqlx::query!("DELETE FROM opened_payments WHERE order_id = ANY($1)", orders)
        .execute(&mut *tx)
        .await?;
    sqlx::query!(
        "DELETE FROM payments WHERE order_id = ANY($1) AND status IN ('accepted', 'refunded', 'closed')",
        orders,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Whether an order that isn't there may have been deleted with its payments.
pub(super) async fn may_be_deleted(pool: &PgPool, order: OrderId) -> sqlx::Result<bool> {
    Ok(order_id::time_of(order.get()) < postgres::time(pool).await? - limits::ORDER_KEPT_MIN)
}
