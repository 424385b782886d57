//! Cancels all unpaid orders of a coupon for an administrator, for example because its price was wrong.
//!
//! The request ends the orders' time to pay and stores the reason. The expiry job then closes the orders as cancelled,
//! within seconds. Each page of orders is one transaction: if the process dies halfway, repeat the request to end the
//! rest.
//!
//! # What is not promised
//!
//! An order that is paid before the job closes it stays paid. A claim that still waits in the order log is no order
//! yet, and isn't cancelled: pause the coupon, and repeat the request once its claims are rows.

use serde_json::json;
use sqlx::PgPool;

use super::OrderMoves;
use crate::base::limits;
use crate::store::Failure;
use crate::store::audit::{self, Action, Actor, Event};
use crate::store::ids::CouponId;
use crate::store::postgres;

impl OrderMoves {
    /// Ends the time to pay of the coupon's unpaid orders, for this reason. Returns how many; `None` if there is no
    /// such coupon. Orders whose time an earlier request has ended don't count.
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
            // Locked by id, as all transactions that lock several orders do.
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
