//! Bound on orders of flash coupons that their buyer cancels, to claim the same coupon again and again.
//!
//! The claim of a regular coupon is refused once its user has closed too many (`sale/order/write.rs`). A claim of a flash
//! coupon is decided in Redis, which knows no closed orders; so here the *cancelling* is refused, and the order keeps its
//! unit until it is paid or expires. A user holds one live order of a flash coupon, so no two are cancelled at once. A
//! refund is never refused, because the money is the buyer's; so who has been refunded as often can't pay.

use super::{Moved, OrderMoves};
use crate::kit::postgres;
use crate::sale::ids::{OrderId, UserId};
use crate::sale::order::write::ClosedOrders;

impl OrderMoves {
    /// The same, and a buyer leaves no more closed orders of one flash coupon than these.
    pub fn bounded(self, closed: ClosedOrders) -> Self {
        Self { closed, ..self }
    }

    /// The refusal if this buyer has closed as many orders of the coupon within an hour as may be, `any` or by refunds;
    /// none for an order of a regular coupon.
    pub(in crate::sale) async fn closed_too_many(
        &self,
        user: UserId,
        order: OrderId,
        any: bool,
    ) -> sqlx::Result<Option<Moved>> {
        if self.closed.most == 0 {
            return Ok(None);
        }
        let now = postgres::time(&self.pool).await?;
        let oldest = sqlx::query_scalar!(
            r#"SELECT closed.id AS "id!"
               FROM orders AS own CROSS JOIN LATERAL (
                   SELECT id FROM orders
                   WHERE user_id = $2 AND id > $3 AND coupon_id = own.coupon_id AND NOT is_live(status)
                     AND ($5 OR status = 'refunded')
                   ORDER BY id DESC OFFSET $4 LIMIT 1) AS closed
               WHERE own.id = $1 AND own.user_id = $2 AND own.kind = 'flash'"#,
            order.get(),
            user.get(),
            self.closed.counted_behind(now),
            i64::from(self.closed.most) - 1,
            any,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(oldest.map(|oldest| Moved::TooManyClosed(self.closed.wait(now, oldest))))
    }
}
