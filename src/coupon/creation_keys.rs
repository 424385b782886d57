//! Keys of creations (draft-ietf-httpapi-idempotency-key-header): a creation that is repeated under its key gets the
//! same coupon.
//!
//! A key is noted in the transaction that creates the coupon. So a process that dies in between leaves both or neither,
//! and of two requests at the same time one waits for the other and finds its coupon.

use aws_lc_rs::digest;
use sqlx::{PgConnection, PgPool};

use crate::store::ids::CouponId;
use crate::store::postgres;

#[derive(Clone, Debug)]
pub struct CreationKey {
    administrator: i64,
    key: String,
    fingerprint: digest::Digest,
}

/// An earlier creation under a key.
#[derive(Debug, PartialEq, Eq)]
pub enum Former {
    /// From the same body.
    Same(CouponId),
    /// From another body.
    Other,
}

impl CreationKey {
    /// The key of an administrator's request with this body.
    pub fn new(administrator: i64, key: String, body: &[u8]) -> Self {
        Self { administrator, key, fingerprint: digest::digest(&digest::SHA256, body) }
    }
}

pub async fn former(pool: &PgPool, key: &CreationKey) -> sqlx::Result<Option<Former>> {
    let row = sqlx::query!(
        r#"SELECT coupon_id AS "coupon: CouponId", fingerprint FROM creation_keys
           WHERE administrator = $1 AND key = $2"#,
        key.administrator,
        key.key,
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|row| match row.fingerprint == key.fingerprint.as_ref() {
        true => Former::Same(row.coupon),
        false => Former::Other,
    }))
}

/// Notes the key, and deletes some keys that are older than a day. False if another creation has noted it.
pub async fn note(
    transaction: &mut PgConnection,
    key: &CreationKey,
    coupon: CouponId,
) -> sqlx::Result<bool> {
    postgres::plan_for_values(&mut *transaction).await?;
    sqlx::query!(
        "DELETE FROM creation_keys WHERE (administrator, key) IN (
             SELECT administrator, key FROM creation_keys WHERE created_at < now() - interval '1 day'
             ORDER BY created_at LIMIT 100 FOR UPDATE SKIP LOCKED)"
    )
    .execute(&mut *transaction)
    .await?;
    let noted = sqlx::query!(
        "INSERT INTO creation_keys (administrator, key, fingerprint, coupon_id) VALUES ($1, $2, $3, $4)
         ON CONFLICT DO NOTHING",
        key.administrator,
        key.key,
        key.fingerprint.as_ref(),
        coupon.get(),
    )
    .execute(transaction)
    .await?;
    Ok(noted.rows_affected() == 1)
}
