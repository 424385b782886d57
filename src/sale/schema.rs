//! The database schema: the files in `migrations/`, embedded into the binary.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{AssertSqlSafe, PgConnection, PgPool};

static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrations = sqlx::migrate!();
    // In place of the library's lock stands `LOCK`, which is not waited for within a statement: such a statement holds
    // a snapshot, and building an index concurrently waits for the end of all snapshots.
    migrations.set_locking(false);
    migrations
});

/// Advisory lock of the process that migrates: `migrate` in ASCII.
const LOCK: i64 = 0x006d_6967_7261_7465;
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// Brings the database up to date. Does nothing when it is.
///
/// A migration that builds an index concurrently (`-- no-transaction`) has the name of that index, and no other
/// statement. If its process died in it, the index is dropped and built again.
///
/// # Errors
///
/// When Postgres doesn't answer, or a migration that has run differs from the one here.
pub async fn migrate(pool: &PgPool) -> Result<(), MigrateError> {
    let mut connection = pool.acquire().await?;
    // A migration may take any time.
    sqlx::query("SET statement_timeout = 0").execute(&mut *connection).await?;
    sqlx::query("SET lock_timeout = 0").execute(&mut *connection).await?;
    let migrated = migrate_alone(&mut connection).await;
    // The lock ends with its session.
    connection.close().await?;
    migrated
}

async fn migrate_alone(connection: &mut PgConnection) -> Result<(), MigrateError> {
    let lock = || sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(LOCK);
    while !lock().fetch_one(&mut *connection).await? {
        tokio::time::sleep(LOCK_PAUSE).await;
    }
    let applied: HashSet<i64> =
        applied(connection).await?.into_iter().map(|(version, _)| version).collect();
    let missing = MIGRATIONS.iter().filter(|migration| !applied.contains(&migration.version));
    for migration in missing.filter(|migration| migration.no_tx) {
        let index = migration.description.replace(' ', "_");
        let drop = format!("DROP INDEX CONCURRENTLY IF EXISTS {index}");
        sqlx::query(AssertSqlSafe(drop)).execute(&mut *connection).await?;
    }
    MIGRATIONS.run(connection).await
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
    let applied = applied(&mut *pool.acquire().await?).await?;
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

/// Number and name of each migration that the database has had.
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
