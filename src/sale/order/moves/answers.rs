//! Answers to the caller of a move: the order, or the statuses that stand in its way.

use super::{Move, Moved, OrderMoves};
use crate::sale::ids::{CouponId, OrderId, UserId};
use crate::sale::order::model::{Order, OrderStatus, RedemptionCode};

impl OrderMoves {
    /// One order, of any user.
    pub async fn find(&self, order: OrderId) -> sqlx::Result<Option<Order>> {
        sqlx::query_as!(
            Order,
            r#"SELECT id AS "order_id: OrderId", coupon_id AS "coupon_id: CouponId",
                      user_id AS "user_id: UserId", status AS "status: OrderStatus", pay_method,
                      pay_cents, currency, pay_by,
                      claimed_at, paid_at, redeemed_at, cancelled_at, expired_at, refunding_at, refunded_at,
                      CASE WHEN status = 'cancelled' THEN cancel_reason END AS cancel_reason,
                      (SELECT code FROM redemptions WHERE order_id = orders.id AND status = 'paid') AS "redemption_code: RedemptionCode"
               FROM orders WHERE id = $1"#,
            order.get(),
        )
        .fetch_optional(&self.pool)
        .await
    }

    /// The answer if the order isn't where the move begins, or isn't this user's. `None` if the move can be tried;
    /// its UPDATE tells whether it succeeds.
    pub(in crate::sale) async fn cannot(
        &self,
        the_move: &Move,
        order: OrderId,
        user: Option<UserId>,
    ) -> sqlx::Result<Option<Moved>> {
        let found = self.find(order).await?;
        let Some(found) = found.filter(|found| user.is_none_or(|user| user == found.user_id))
        else {
            return Ok(Some(Moved::NotFound));
        };
        Ok((found.status != the_move.from).then(|| the_move.judge(found)))
    }

    /// The answer after the move has been tried.
    pub(in crate::sale) async fn answer(
        &self,
        the_move: &Move,
        order: OrderId,
        moved: bool,
    ) -> sqlx::Result<Moved> {
        let found = self.find(order).await?.ok_or(sqlx::Error::RowNotFound)?;
        // The order may have gone on already.
        Ok(if moved { Moved::There(Box::new(found)) } else { the_move.judge(found) })
    }
}

impl Move {
    fn judge(&self, order: Order) -> Moved {
        if self.there.contains(&order.status) {
            return Moved::There(Box::new(order));
        }
        Moved::Impossible { from: order.status, to: self.there[0] }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CANCEL, PAY, REFUND};
    use super::*;

    #[test]
    fn a_move_has_happened_in_the_statuses_that_it_leads_to() {
        use OrderStatus::{Cancelled, Paid, Redeemed, Refunded, Refunding, Unpaid};
        for (the_move, there, to) in [
            (PAY, &[Paid, Redeemed][..], Paid),
            (REFUND, &[Refunding, Refunded], Refunding),
            (CANCEL, &[Cancelled], Cancelled),
        ] {
            for status in OrderStatus::ALL {
                let order = Order::example(7, 1, status);
                let answer = match there.contains(&status) {
                    true => Moved::There(Box::new(order.clone())),
                    false => Moved::Impossible { from: status, to },
                };
                assert_eq!(the_move.judge(order), answer);
            }
        }
        assert_eq!([PAY.from, REFUND.from, CANCEL.from], [Unpaid, Paid, Unpaid]);
    }
}
