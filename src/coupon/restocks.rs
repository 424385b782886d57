//! Keys of restocks, as rows of the table `restocks`: a repeat under its key adds nothing.
//!
//! An ended coupon takes no restock and never opens again. So the keys of its restocks may be deleted: a repeat is told
//! that the coupon has ended, and adds no unit.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool};

use super::input::Restock;
use crate::store::ids::CouponId;
use crate::store::postgres;

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

/// Deletes restocks of coupons that ended before this time. Returns their number.
pub async fn forget(pool: &PgPool, ended_before: DateTime<Utc>, limit: u32) -> sqlx::Result<u64> {
    let mut tx = postgres::begin_planning(pool).await?;
    let gone = sqlx::query!(
        "DELETE FROM restocks WHERE ctid = ANY(ARRAY(
             SELECT restocks.ctid FROM restocks JOIN coupons ON coupons.id = restocks.coupon_id
             WHERE state = 'ended' AND ended_at < $1 LIMIT $2))",
        ended_before,
        i64::from(limit),
    );
    let deleted = gone.execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    Ok(deleted)
}
