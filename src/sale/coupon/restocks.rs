//! Keys of restocks, as rows of the table `restocks`: a repeat under its key adds nothing.
//!
//! An ended coupon takes no restock and never opens again. So the keys of its restocks may go, and no repeat adds a unit
//! afterwards: it is told that the coupon has ended.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool};

use super::input::Restock;
use crate::kit::postgres::{self, Page};
use crate::sale::ids::CouponId;

/// Number of units that this key has added to this coupon, if it was used.
pub(super) async fn before(
    tx: &mut PgConnection,
    coupon: CouponId,
    restock: &Restock,
) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        "SELECT units FROM restocks WHERE coupon_id = $1 AND key = $2",
        coupon.get(),
        restock.key,
    )
    .fetch_optional(tx)
    .await
}

/// Notes a restock under its key.
pub(super) async fn note(
    tx: &mut PgConnection,
    coupon: CouponId,
    restock: &Restock,
) -> sqlx::Result<()> {
    sqlx::query!(
        "INSERT INTO restocks (coupon_id, key, units) VALUES ($1, $2, $3)",
        coupon.get(),
        restock.key,
        restock.units,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Deletes restocks of the coupons on a page that ended before this time. The page begins behind the coupon `behind`, and
/// is looked at again if it may have more of them than one statement deletes.
pub async fn forget(
    pool: &PgPool,
    behind: i64,
    ended_before: DateTime<Utc>,
    limit: u32,
) -> sqlx::Result<Page> {
    let mut tx = postgres::begin_planning(pool).await?;
    let mut coupons = sqlx::query_scalar!(
        "SELECT coupon_id FROM restocks WHERE coupon_id > $1 ORDER BY coupon_id, key LIMIT $2",
        behind,
        i64::from(limit),
    )
    .fetch_all(&mut *tx)
    .await?;
    let last = coupons.last().copied().filter(|_| coupons.len() >= limit as usize);
    coupons.dedup();
    let gone = sqlx::query!(
        "DELETE FROM restocks WHERE ctid = ANY(ARRAY(
             SELECT restocks.ctid FROM restocks JOIN coupons ON coupons.id = restocks.coupon_id
             WHERE coupon_id = ANY($1) AND state = 'ended' AND ended_at < $2 LIMIT $3))",
        &coupons,
        ended_before,
        i64::from(limit),
    );
    let deleted = gone.execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    let is_full = deleted >= u64::from(limit);
    Ok(Page { last: if is_full { Some(behind) } else { last }, deleted })
}
