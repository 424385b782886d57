//! Many unpaid orders whose time is over, closed together, of which Postgres may refuse some.
//!
//! A refused part is halved until the culprit stands alone: it is postponed (`sale/postponed.rs`), and the others are
//! closed in the same pass. The usual culprit is a sale whose `sold` counts fewer orders than there are. Then `sold`
//! says how many orders can be closed; the others are postponed together, however many there are. Each try that waits
//! for a lock in vain takes its time, so orders that one session keeps locked during two of them are postponed together,
//! too.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use super::{Closed, OrderMoves, return_units};
use crate::kit::postgres;
use crate::sale::Failure;
use crate::sale::coupon::model::CouponKind;
use crate::sale::coupon::stock;
use crate::sale::ids::{CouponId, OrderId, UserId};
use crate::sale::pass::Pass;
use crate::sale::postponed::Postponed;

impl OrderMoves {
    /// Closes the unpaid orders among these, all or none. Returns their number.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer, or refuses to close one of them; nothing is closed then.
    pub(in crate::sale) async fn close_these(&self, orders: &[OrderId]) -> sqlx::Result<usize> {
        let ids: Vec<i64> = orders.iter().map(|order| order.get()).collect();
        let mut tx = postgres::begin_planning(&self.pool).await?;
        let closed = sqlx::query_as!(
            Closed,
            // Waits for locked orders: those that are unpaid afterwards stay so. Status and array are asked for apart,
            // as in `expire`.
            r#"WITH these AS (
                   SELECT id, status FROM orders WHERE id = ANY($1) ORDER BY id FOR UPDATE)
               UPDATE orders SET status = CASE WHEN cancel_reason IS NULL THEN 'expired' ELSE 'cancelled' END,
                                 expired_at = CASE WHEN cancel_reason IS NULL THEN now() END,
                                 cancelled_at = CASE WHEN cancel_reason IS NOT NULL THEN now() END,
                                 updated_at = now()
               WHERE orders.id = ANY(ARRAY(SELECT id FROM these WHERE these.status = 'unpaid'))
               RETURNING orders.id AS "order_id: OrderId", coupon_id AS "coupon_id: CouponId",
                         user_id AS "user_id: UserId", kind AS "kind: CouponKind""#,
            &ids,
        )
        .fetch_all(&mut *tx)
        .await?;
        return_units(&mut tx, &closed).await?;
        tx.commit().await?;
        Ok(closed.len())
    }

    /// Closes orders of one coupon, and postpones those that can't be closed. Returns the number closed.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer, or another session keeps the row of the sale locked; some may be closed then.
    pub(in crate::sale) async fn close_what_can_be(
        &self,
        postponed: &Postponed,
        coupon: CouponId,
        orders: &[OrderId],
    ) -> Result<usize, Failure> {
        let mut closed = 0;
        let mut parts = vec![orders.to_vec()];
        // Those of the locked orders, at the last try that waited for a lock in vain.
        let mut holders = BTreeMap::new();
        while let Some(part) = parts.pop() {
            let error = match self.close_these(&part).await {
                Ok(now) => {
                    closed += now;
                    continue;
                }
                Err(error) => error,
            };
            let possible = self.possible(coupon, &part, &error).await?;
            let failure = Failure::from(error);
            if failure.is_of_lock() && self.is_locked(coupon).await? {
                // None of them can be closed now.
                return Err(failure);
            }
            if !postponed.is_of_item(&failure).await? {
                return Err(failure);
            }
            let mut locked = BTreeSet::new();
            if failure.is_of_lock() {
                let before = mem::replace(&mut holders, self.lock_holders(&part).await?);
                if before.is_empty() && !holders.is_empty() {
                    // Another process may be closing the same orders.
                    parts.push(part);
                    continue;
                }
                let kept =
                    holders.iter().filter(|(order, holder)| before.get(order) == Some(holder));
                locked = kept.map(|(order, _)| *order).collect();
            }
            let (not_now, rest): (Vec<_>, Vec<_>) = match possible == 0 || part.len() == 1 {
                true => (part, Vec::new()),
                false => part.into_iter().partition(|order| locked.contains(order)),
            };
            if not_now.is_empty() {
                let (first, second) = rest.split_at(possible);
                parts.extend([second, first].map(<[_]>::to_vec));
                continue;
            }
            let items: Vec<i64> = not_now.iter().map(|order| order.get()).collect();
            postponed.note(Pass::Expiry, &items, &failure.to_string()).await?;
            parts.extend(Some(rest).filter(|rest| !rest.is_empty()));
        }
        Ok(closed)
    }

    /// True if another session keeps the row of the sale locked: then none of its orders can be closed.
    async fn is_locked(&self, coupon: CouponId) -> sqlx::Result<bool> {
        Ok(!stock::locked_among(&self.pool, [coupon]).await?.is_empty())
    }

    /// The locked ones of these orders, each with the transaction, or the group of them, that has locked its row.
    async fn lock_holders(&self, orders: &[OrderId]) -> sqlx::Result<BTreeMap<OrderId, String>> {
        let ids: Vec<i64> = orders.iter().map(|order| order.get()).collect();
        let mut tx = postgres::begin_planning(&self.pool).await?;
        let locked = sqlx::query!(
            // The lock that closing takes, without waiting for it.
            r#"WITH free AS (SELECT id FROM orders WHERE id = ANY($1) FOR UPDATE SKIP LOCKED)
               SELECT id AS "order_id: OrderId", xmax::text AS "holder!" FROM orders
               WHERE id = ANY($1) AND id <> ALL(ARRAY(SELECT id FROM free))"#,
            &ids,
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.rollback().await?;
        Ok(locked.into_iter().map(|row| (row.order_id, row.holder)).collect())
    }

    /// Number of these orders, which were refused together, that may be possible together: as many as the sale counts as
    /// sold, if that was the reason, else half of them.
    async fn possible(
        &self,
        coupon: CouponId,
        part: &[OrderId],
        error: &sqlx::Error,
    ) -> Result<usize, Failure> {
        let half = part.len() / 2;
        if postgres::violated_constraint(error) != Some("flash_sales_sold_within_total") {
            return Ok(half);
        }
        let counted = usize::try_from(stock::sold(&self.pool, coupon).await?).unwrap_or(0);
        // `sold` has been counted again meanwhile if it has as many.
        Ok(if counted < part.len() { counted } else { half })
    }
}
