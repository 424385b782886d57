//! Facts about a storm's sale in the stores.

use std::collections::HashMap;

use sqlx::PgPool;

use super::verdict::Found;
use crate::sale::coupon::create::Coupons;
use crate::sale::ids::{CouponId, OrderId, UserId};
use crate::sale::order::live;
use crate::sale::{Failure, Stores};

/// Units left in Redis; `None` while Redis can't tell.
pub async fn left(coupons: &Coupons, coupon: CouponId) -> Result<Option<i64>, Failure> {
    let found = coupons.get(coupon).await?;
    Ok(found.and_then(|coupon| coupon.sale).and_then(|sale| sale.left))
}

/// Rows of live orders, as Postgres counts them in the transactions that insert them.
pub async fn counted_rows(pool: &PgPool, coupon: CouponId) -> sqlx::Result<i64> {
    sqlx::query_scalar!("SELECT sold FROM flash_sales WHERE coupon_id = $1", coupon.get())
        .fetch_one(pool)
        .await
}

/// All facts for a verdict, read order by order. `None` while Redis can't tell the units left.
pub async fn found(
    stores: &Stores,
    coupons: &Coupons,
    (coupon, stock): (CouponId, i64),
    told: &[(OrderId, UserId)],
) -> Result<Option<Found>, Failure> {
    let Some(left) = left(coupons, coupon).await? else {
        return Ok(None);
    };
    let pool = &stores.pool;
    let mut rows = HashMap::new();
    for page in told.chunks(live::PAGE) {
        rows.extend(live::by_id(pool, coupon, page.iter().map(|(order, _)| *order)).await?);
    }
    let live = all_live(pool, coupon).await?;
    let last_row_ms = last_row_ms(pool, coupon).await?;
    Ok(Some(Found { stock, left, live, rows, last_row_ms }))
}

async fn all_live(pool: &PgPool, coupon: CouponId) -> sqlx::Result<Vec<(UserId, OrderId)>> {
    let limit = i64::try_from(live::PAGE).unwrap_or(i64::MAX);
    let mut all: Vec<(UserId, OrderId)> = Vec::new();
    loop {
        let after = all.last().map(|(user, _)| *user);
        let page = live::live_page(pool, coupon, after, limit).await?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

async fn last_row_ms(pool: &PgPool, coupon: CouponId) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        "SELECT (1000 * extract(epoch FROM max(created_at - claimed_at)))::bigint AS ms FROM orders
         WHERE coupon_id = $1 AND kind = 'flash' AND is_live(status)",
        coupon.get(),
    )
    .fetch_one(pool)
    .await
}
