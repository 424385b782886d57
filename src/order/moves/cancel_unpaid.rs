//! All unpaid orders of a coupon, cancelled at an administrator's word: its price was wrong, say.
//!
//! The request ends the time in which these orders may be paid, and leaves the reason in them; the expiry closes them
//! within seconds, as cancelled. A page of orders is one transaction, so a process that dies in the middle has ended
//! the time of some orders, and the next request ends that of the others.
//!
//! # What is not promised
//!
//! Whichever is first wins: an order that is paid before the expiry has come to it stays paid. A claim that still waits
//! in the order log is no order yet, and is left alone: pause the coupon, and ask again once its claims are rows.

use serde_json::json;
use sqlx::PgPool;

use super::OrderMoves;
use crate::base::limits;
use crate::store::Failure;
use crate::store::audit::{self, Action, Actor, Event};
use crate::store::ids::CouponId;
use crate::store::postgres;

impl OrderMoves {
    /// Ends the time to pay of the coupon's unpaid orders, for this reason. Returns their number; `None` without such a
    /// coupon. Orders that have been told so before don't count.
    pub async fn cancel_unpaid(
        &self,
        coupon: CouponId,
        reason: String,
        by: &Actor,
    ) -> Result<Option<u64>, Failure> {
        let (pool, by) = (self.pool.clone(), by.clone());
        self.to_the_end(async move { cancel_all(&pool, coupon, &reason, &by).await }).await
    }
}

async fn cancel_all(
    pool: &PgPool,
    coupon: CouponId,
    reason: &str,
    by: &Actor,
) -> sqlx::Result<Option<u64>> {
    let known = sqlx::query!("SELECT FROM coupons WHERE id = $1", coupon.get());
    if known.fetch_optional(pool).await?.is_none() {
        return Ok(None);
    }
    let (mut behind, mut orders) = (0, 0);
    loop {
        let mut tx = postgres::begin_by_index(pool).await?;
        let page = sqlx::query!(
            // Locked in the order in which all lock several orders.
            r#"WITH page AS (
                   SELECT id, cancel_reason FROM orders
                   -- Compared and sorted as rows: only one index has this order.
                   WHERE (coupon_id, status, id) > ($1, 'unpaid', $2)
                     AND (coupon_id, status, id) <= ($1, 'unpaid', 9223372036854775807)
                   ORDER BY coupon_id, status, id LIMIT $3 FOR UPDATE),
               ended AS (
                   UPDATE orders SET pay_by = now(), cancel_reason = $4, updated_at = now()
                   WHERE id = ANY(ARRAY(SELECT id FROM page WHERE page.cancel_reason IS NULL)) RETURNING id)
               SELECT max(id) AS last, (SELECT count(*) FROM ended) AS "ended!" FROM page"#,
            coupon.get(),
            behind,
            limits::CANCELLATIONS_BATCH,
            reason,
        )
        .fetch_one(&mut *tx)
        .await?;
        if orders == 0 && page.ended > 0 {
            let event = Event::of(Action::CancelUnpaidOrders, coupon.get());
            audit::note(&mut tx, by, event.after(json!({ "reason": reason }))).await?;
        }
        tx.commit().await?;
        orders += page.ended.unsigned_abs();
        let Some(last) = page.last else {
            return Ok(Some(orders));
        };
        behind = last;
    }
}
