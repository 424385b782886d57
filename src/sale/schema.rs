//! The database schema: the files in `migrations/`, embedded into the binary.

use std::collections::HashSet;

use sqlx::PgPool;
use sqlx::migrate::{MigrateError, Migrator};

static MIGRATIONS: Migrator = sqlx::migrate!();

/// Brings the database up to date. Does nothing when it is.
///
/// # Errors
///
/// When Postgres doesn't answer, or a migration that has run differs from the one here.
pub async fn migrate(pool: &PgPool) -> Result<(), MigrateError> {
    let mut connection = pool.acquire().await?;
    // A migration may take any time.
    sqlx::query("SET statement_timeout = 0").execute(&mut *connection).await?;
    let migrated = MIGRATIONS.run(&mut *connection).await;
    connection.close().await?;
    migrated
}

/// Migrations that the database hasn't had yet, by name.
pub async fn missing(pool: &PgPool) -> sqlx::Result<Vec<String>> {
    let migrated: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
        .fetch_one(pool)
        .await?;
    let versions: Vec<i64> = if migrated {
        sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success")
            .fetch_all(pool)
            .await?
    } else {
        Vec::new()
    };
    let applied: HashSet<i64> = versions.into_iter().collect();
    let missing = MIGRATIONS.iter().filter(|migration| !applied.contains(&migration.version));
    Ok(missing.map(|migration| migration.description.to_string()).collect())
}
