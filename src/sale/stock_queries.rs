//! Reading the table of sales: which of them Redis has to hold, or soon will.

use std::time::Duration;

use sqlx::{PgConnection, PgPool};

use crate::base::limits;
use crate::sale::ids::CouponId;

/// Lets the statements of this transaction take up to [`limits::RECOUNT_TIMEOUT`].
///
/// # Errors
///
/// When Postgres doesn't answer.
pub async fn allow_long_statements(tx: &mut PgConnection) -> sqlx::Result<()> {
    let timeout_ms = limits::RECOUNT_TIMEOUT.as_millis().to_string();
    sqlx::query!("SELECT set_config('statement_timeout', $1, true)", timeout_ms)
        .fetch_one(tx)
        .await?;
    Ok(())
}

/// Whether there is a sale of this coupon.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub async fn exists(tx: &mut PgConnection, coupon: CouponId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM flash_sales WHERE coupon_id = $1) AS "exists!""#,
        coupon.get()
    )
    .fetch_one(tx)
    .await
}

/// The newest coupons that Redis has to hold, each with its units sold.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub async fn newest_loaded(pool: &PgPool, limit: u32) -> sqlx::Result<Vec<(CouponId, i64)>> {
    let rows = sqlx::query!(
        r#"SELECT coupon_id AS "coupon_id: CouponId", sold FROM flash_sales
           WHERE loaded_at IS NOT NULL AND archived_at IS NULL ORDER BY coupon_id DESC LIMIT $1"#,
        i64::from(limit),
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|row| (row.coupon_id, row.sold)).collect())
}

/// All coupons that Redis has to hold: loaded and not archived.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub async fn loaded(pool: &PgPool) -> sqlx::Result<Vec<CouponId>> {
    sqlx::query_scalar!(
        r#"SELECT coupon_id AS "coupon_id: CouponId" FROM flash_sales
           WHERE loaded_at IS NOT NULL AND archived_at IS NULL ORDER BY coupon_id"#
    )
    .fetch_all(pool)
    .await
}

/// Coupons behind `after` that Redis has to hold, in the order of their ids, each with its newest revision.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub async fn revisions(
    pool: &PgPool,
    after: Option<CouponId>,
    limit: i64,
) -> sqlx::Result<Vec<(CouponId, i64)>> {
    let rows = sqlx::query!(
        r#"SELECT coupon_id AS "coupon_id: CouponId", revision
           FROM flash_sales JOIN coupons ON id = coupon_id
           WHERE loaded_at IS NOT NULL AND archived_at IS NULL AND coupon_id > coalesce($1::bigint, 0)
           ORDER BY coupon_id LIMIT $2"#,
        after.map(CouponId::get),
        limit,
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|row| (row.coupon_id, row.revision)).collect())
}

/// Sales behind `after` that open within `ahead`, aren't over, and have never been loaded.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub async fn to_load(
    pool: &PgPool,
    ahead: Duration,
    after: Option<CouponId>,
    limit: i64,
) -> sqlx::Result<Vec<CouponId>> {
    sqlx::query_scalar!(
        r#"SELECT coupon_id AS "coupon_id: CouponId" FROM flash_sales JOIN coupons ON id = coupon_id
           WHERE loaded_at IS NULL AND opens_at < now() + $1 * interval '1 second'
             AND closes_at > now() AND state <> 'ended' AND coupon_id > coalesce($2::bigint, 0)
           ORDER BY coupon_id LIMIT $3"#,
        ahead.as_secs_f64(),
        after.map(CouponId::get),
        limit,
    )
    .fetch_all(pool)
    .await
}
