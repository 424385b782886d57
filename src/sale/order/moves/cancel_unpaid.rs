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

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::{PgConnection, PgPool};

use super::OrderMoves;
use crate::base::limits;
use crate::kit::postgres;
use crate::sale::Failure;
use crate::sale::audit::{self, Action, Actor, Event};
use crate::sale::ids::{CouponId, OrderId};

/// Place of an order among those of its coupon.
type Place = (DateTime<Utc>, OrderId);

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
    let (mut behind, mut orders) = (None, 0);
    loop {
        let page = page(pool, coupon, behind).await?;
        let Some((time, order)) = page.last() else {
            return Ok(Some(orders));
        };
        behind = Some((*time, *order));
        let mut tx = postgres::begin_planning(pool).await?;
        let ended = end_time(&mut tx, &page, reason).await?;
        if orders == 0 && ended > 0 {
            let event = Event::of(Action::CancelUnpaidOrders, coupon.get());
            audit::note(&mut tx, by, event.after(json!({ "reason": reason }))).await?;
        }
        tx.commit().await?;
        orders += ended;
    }
}

/// The next unpaid orders of the coupon, first claim first.
async fn page(pool: &PgPool, coupon: CouponId, behind: Option<Place>) -> sqlx::Result<Vec<Place>> {
    let mut tx = postgres::begin_by_index(pool).await?;
    let (time, order) = behind.unzip();
    let rows = sqlx::query!(
        r#"SELECT claimed_at, id AS "id: OrderId" FROM orders
           WHERE coupon_id = $1 AND status = 'unpaid'
             AND (claimed_at, id) > (coalesce($2::timestamptz, '-infinity'), coalesce($3::bigint, 0))
           ORDER BY claimed_at, id LIMIT $4"#,
        coupon.get(),
        time,
        order.map(OrderId::get),
        limits::CANCELLATIONS_BATCH,
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(rows.into_iter().map(|row| (row.claimed_at, row.id)).collect())
}

/// Ends the time to pay of those that are unpaid, and have not been told so before. Returns their number.
async fn end_time(tx: &mut PgConnection, page: &[Place], reason: &str) -> sqlx::Result<u64> {
    let ids: Vec<i64> = page.iter().map(|(_, order)| order.get()).collect();
    let done = sqlx::query!(
        // Locked in the order in which all lock several orders; those that are unpaid afterwards stay so.
        "WITH these AS (
             SELECT id, status, cancel_reason FROM orders WHERE id = ANY($1) ORDER BY id FOR UPDATE)
         UPDATE orders SET pay_by = now(), cancel_reason = $2, updated_at = now()
         WHERE orders.id = ANY(ARRAY(
             SELECT id FROM these WHERE these.status = 'unpaid' AND these.cancel_reason IS NULL))",
        &ids,
        reason,
    )
    .execute(tx)
    .await?;
    Ok(done.rows_affected())
}
