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

/// Fitness of a database for this binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fitness {
    /// The database has had all migrations of this binary, and no other.
    UpToDate,
    /// Names of the migrations that the database hasn't had yet.
    Older(Vec<String>),
    /// Numbers and names of migrations that this binary doesn't know: a newer one has upgraded the database.
    Newer(Vec<String>),
}

/// Compares the migrations of the database with those of this binary.
pub async fn fitness(pool: &PgPool) -> sqlx::Result<Fitness> {
    let applied = applied(pool).await?;
    let unknown = applied.iter().filter(|(version, _)| !MIGRATIONS.version_exists(*version));
    let unknown: Vec<String> = unknown.map(|(version, name)| format!("{version} {name}")).collect();
    if !unknown.is_empty() {
        return Ok(Fitness::Newer(unknown));
    }
    let applied: HashSet<i64> = applied.into_iter().map(|(version, _)| version).collect();
    let missing = MIGRATIONS.iter().filter(|migration| !applied.contains(&migration.version));
    let missing: Vec<String> = missing.map(|migration| migration.description.to_string()).collect();
    Ok(if missing.is_empty() { Fitness::UpToDate } else { Fitness::Older(missing) })
}

/// Number and name of each migration that the database has had.
async fn applied(pool: &PgPool) -> sqlx::Result<Vec<(i64, String)>> {
    let migrated: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
        .fetch_one(pool)
        .await?;
    if !migrated {
        return Ok(Vec::new());
    }
    sqlx::query_as(
        "SELECT version, description FROM _sqlx_migrations WHERE success ORDER BY version",
    )
    .fetch_all(pool)
    .await
}
