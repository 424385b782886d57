//! The facts that all processes share; owner of the table `settings`.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool};

/// Facts about the whole installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Lanes that new coupons are spread over. Only grows.
    pub lanes: i32,
}

/// Reads the settings.
///
/// # Errors
///
/// When Postgres doesn't answer, or isn't migrated.
pub async fn read(pool: &PgPool) -> sqlx::Result<Settings> {
    sqlx::query_as!(Settings, "SELECT lanes FROM settings").fetch_one(pool).await
}

/// Raises the number of lanes. A smaller number than the stored one changes nothing: coupons live in
/// the lanes that would be given up. Returns the number that holds now.
pub async fn raise_lanes(pool: &PgPool, lanes: i32) -> sqlx::Result<i32> {
    sqlx::query!("UPDATE settings SET lanes = $1, updated_at = now() WHERE lanes < $1", lanes)
        .execute(pool)
        .await?;
    Ok(read(pool).await?.lanes)
}

/// Notes, in the transaction that deletes them, that settled payments of orders before this time are deleted.
pub async fn payments_kept_from(tx: &mut PgConnection, time: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE settings SET payments_kept_from = $1, updated_at = now() WHERE payments_kept_from < $1",
        time,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Raises the retention mark to this order, in the transaction that moves it into the history.
pub async fn orders_moved_to(tx: &mut PgConnection, order: i64) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE settings SET orders_moved_to = $1, updated_at = now() WHERE orders_moved_to < $1",
        order,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// The retention mark: the newest order that has moved into the history. It isn't raised until the end of this
/// transaction.
pub async fn hold_orders_moved_to(tx: &mut PgConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar!("SELECT orders_moved_to FROM settings FOR SHARE").fetch_one(tx).await
}

/// Time before which settled payments of orders have been deleted.
pub async fn payments_known_from(pool: &PgPool) -> sqlx::Result<DateTime<Utc>> {
    sqlx::query_scalar!("SELECT payments_kept_from FROM settings").fetch_one(pool).await
}
