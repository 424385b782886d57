//! The facts that all processes share; owner of the table `settings`.

use sqlx::PgPool;

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

