//! The database schema: the files in `migrations/`, embedded into the binary.

use std::collections::HashSet;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{PgConnection, PgPool};

static MIGRATOR: Migrator = sqlx::migrate!();

/// Migrates the database, if needed. If several processes start together, one migrates and the others wait.
///
/// # Errors
///
/// When Postgres doesn't answer, or an applied migration differs from the one here.
pub async fn migrate(pool: &PgPool) -> Result<(), MigrateError> {
    let mut connection = pool.acquire().await?;
    // A migration, or the wait for one, may take long.
    sqlx::query("SET statement_timeout = 0").execute(&mut *connection).await?;
    sqlx::query("SET lock_timeout = 0").execute(&mut *connection).await?;
    let migrated = MIGRATOR.run(&mut *connection).await;
    connection.close().await?;
    migrated
}

/// Name of the first migration before 1.0. No version since can read such a database.
const FIRST_BEFORE_1_0: &str = "coupons";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fitness {
    /// A version before 1.0 made the database.
    Before1_0,
    /// The database has all migrations of this binary, and no others.
    UpToDate,
    /// Names of the migrations that the database lacks.
    Older(Vec<String>),
    /// Numbers and names of migrations that this binary doesn't know: a newer version has upgraded the database.
    Newer(Vec<String>),
}

pub async fn fitness(pool: &PgPool) -> sqlx::Result<Fitness> {
    let applied = applied(&mut *pool.acquire().await?).await?;
    if applied.first().is_some_and(|(_, name)| name == FIRST_BEFORE_1_0) {
        return Ok(Fitness::Before1_0);
    }
    let unknown = applied.iter().filter(|(version, _)| !MIGRATOR.version_exists(*version));
    let unknown: Vec<String> = unknown.map(|(version, name)| format!("{version} {name}")).collect();
    if !unknown.is_empty() {
        return Ok(Fitness::Newer(unknown));
    }
    let applied: HashSet<i64> = applied.into_iter().map(|(version, _)| version).collect();
    let missing = MIGRATOR.iter().filter(|migration| !applied.contains(&migration.version));
    let missing: Vec<String> = missing.map(|migration| migration.description.to_string()).collect();
    Ok(if missing.is_empty() { Fitness::UpToDate } else { Fitness::Older(missing) })
}

/// Rights on our tables, views, sequences and functions that the service needs and its role lacks, each in words.
pub async fn missing_rights(pool: &PgPool) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar(
        "SELECT format('%s on %s', needed, relname)
         FROM pg_class CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) needed
         WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v')
           AND (needed = 'SELECT' OR relkind <> 'v' AND relname <> '_sqlx_migrations')
           AND NOT has_table_privilege(pg_class.oid, needed)
         UNION ALL
         SELECT format('USAGE on %s', relname) FROM pg_class
         WHERE relnamespace = 'public'::regnamespace AND relkind = 'S'
           AND NOT CASE relkind WHEN 'S' THEN has_sequence_privilege(oid, 'USAGE') END
         UNION ALL
         SELECT format('EXECUTE on %s', oid::regprocedure) FROM pg_proc
         WHERE pronamespace = 'public'::regnamespace AND NOT has_function_privilege(oid, 'EXECUTE')
         ORDER BY 1",
    )
    .fetch_all(pool)
    .await
}

/// Number and name of each migration that was applied.
async fn applied(connection: &mut PgConnection) -> sqlx::Result<Vec<(i64, String)>> {
    let migrated: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await?;
    if !migrated {
        return Ok(Vec::new());
    }
    sqlx::query_as(
        "SELECT version, description FROM _sqlx_migrations WHERE success ORDER BY version",
    )
    .fetch_all(connection)
    .await
}
