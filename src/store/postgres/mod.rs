//! Connects to Postgres, reads facts about the server, and interprets its errors.

// Settings of each session, and sessions that can't be used any more.
mod sessions;

// Advisory locks, each held by its own session.
pub mod session_lock;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{
    ConnectOptions, Connection, Error, PgConnection, PgExecutor, PgPool, Postgres, SqlSafeStr,
    Transaction,
};
use tokio::time::timeout;

use self::sessions::Sessions;
use crate::base::limits;

/// Name of our sessions in `pg_stat_activity`.
const APPLICATION_NAME: &str = "flash-sale";

/// Facts about a server, and its settings as our sessions see them: a role or a database may override some.
#[derive(Clone, Debug)]
pub struct ServerFacts {
    /// The version, as in `15.14 (Debian 15.14-0+deb12u1)`.
    pub version: String,
    /// The version as a number: 150014.
    pub version_number: i32,
    pub fsync: bool,
    pub full_page_writes: bool,
    pub synchronous_commit: String,
    /// `synchronous_standby_names`; empty for none.
    pub synchronous_standbys: String,
    /// Connections that are not reserved for administrators.
    pub connections_max: i64,
    /// Connections in use by programs other than flash-sale.
    pub connections_others: i64,
}

/// A pool of connections, which are opened when needed. `timeout` bounds how long the server works on one statement,
/// and how long a transaction waits for its next statement. A statement waits for a lock for half of that
/// ([`is_lock_timeout`]). With `events`, triggers record what these sessions change.
///
/// # Errors
///
/// When the URL can't be understood.
pub fn pool(
    url: &str,
    connections_max: u32,
    timeout: Duration,
    events: bool,
) -> Result<PgPool, Error> {
    let options = options(url)?;
    let sessions = Arc::new(Sessions::new(timeout, events));
    let of_new = sessions.clone();
    Ok(PgPoolOptions::new()
        .max_connections(connections_max)
        .acquire_timeout(limits::POSTGRES_ACQUIRE_TIMEOUTS * timeout)
        // A ping at each checkout would double the round trips. The first statement notices a broken connection, and
        // every caller has to handle that anyway.
        .test_before_acquire(false)
        .after_connect(move |connection, _| {
            let sessions = of_new.clone();
            Box::pin(async move { sessions.settle_new(connection).await })
        })
        .before_acquire(move |connection, about| {
            let sessions = sessions.clone();
            Box::pin(async move { sessions.is_good(connection, about.age).await })
        })
        .connect_lazy_with(options))
}

fn options(url: &str) -> Result<PgConnectOptions, Error> {
    Ok(PgConnectOptions::from_str(url)?.application_name(APPLICATION_NAME))
}

/// Uses this URL for new connections. Open connections stay.
///
/// # Errors
///
/// When the URL can't be understood.
pub fn change_url(pool: &PgPool, url: &str) -> Result<(), Error> {
    pool.set_connect_options(options(url)?);
    Ok(())
}

/// Begins a transaction. The caller may be dropped at any moment, for example when its client has gone away.
///
/// A caller of [`sqlx::Pool::begin`] must not be, in version 0.9.0 (<https://github.com/transact-rs/sqlx/issues/4385>).
/// Dropped between BEGIN and the reply, that method returns a connection to the pool with an open transaction that sqlx
/// doesn't know about. Rows that the next callers commit on that connection are gone when one of these callers rolls
/// back.
pub async fn begin(pool: &PgPool) -> Result<Transaction<'static, Postgres>, Error> {
    begin_with(pool, "BEGIN").await
}

/// Begins a read-only transaction on one snapshot, and plans its statements as [`begin_planning`] does.
pub async fn begin_snapshot(pool: &PgPool) -> Result<Transaction<'static, Postgres>, Error> {
    let mut tx = begin_with(pool, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    plan_for_values(&mut tx).await?;
    // The transaction may be idle between two pages, while Redis is slow.
    sqlx::query!("SELECT set_config('idle_in_transaction_session_timeout', '30s', true)")
        .fetch_one(&mut *tx)
        .await?;
    Ok(tx)
}

async fn begin_with(
    pool: &PgPool,
    statement: &'static str,
) -> Result<Transaction<'static, Postgres>, Error> {
    let connection = pool.acquire().await?;
    let begin = Transaction::begin(connection, Some(statement.into_sql_str()));
    #[expect(clippy::disallowed_methods, reason = "one statement; closing the pool waits for it")]
    let begun = tokio::spawn(begin);
    begun.await.map_err(|_| Error::WorkerCrashed)?
}

/// A connection with unfinished work, which no other caller may get. It is closed when it is dropped, unless the work
/// [is finished](Self::finished).
pub struct Unfinished(Option<PoolConnection<Postgres>>);

impl Unfinished {
    /// Takes a connection for work that may be interrupted.
    pub async fn acquire(pool: &PgPool) -> Result<Self, Error> {
        Ok(Self(Some(pool.acquire().await?)))
    }

    pub fn connection(&mut self) -> &mut PgConnection {
        self.0.as_mut().expect("only `finished` takes it, with `self`")
    }

    /// Returns the connection to its pool.
    pub fn finished(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        drop(self.0.take().map(PoolConnection::detach));
    }
}

/// Begins a transaction whose statements are planned for the current tables and values. Statements with an array need
/// that, and so do those of jobs that join tables or take the first rows of many.
///
/// Otherwise a prepared statement keeps the plan that was good at its sixth execution, and on a new database that is a
/// plan for empty tables. To find one row by its key, Postgres uses the index even then. For an array, whose length the
/// plan doesn't know, and for the other side of a join, it reads the whole table, however large the table has become,
/// until the table is next analysed. Planning costs a server about 0.1 ms. That is too much for each statement of a
/// request, so those are written so that only one index fits.
pub async fn begin_planning(pool: &PgPool) -> Result<Transaction<'static, Postgres>, Error> {
    let mut tx = begin(pool).await?;
    plan_for_values(&mut tx).await?;
    Ok(tx)
}

/// Like [`begin_planning`], and its statements find the first rows of many by an index that has them sorted. Otherwise,
/// while the statistics are older than the rows, Postgres believes that there are few and sorts them all for each
/// batch.
pub async fn begin_by_index(pool: &PgPool) -> Result<Transaction<'static, Postgres>, Error> {
    let mut tx = begin_planning(pool).await?;
    sqlx::query!("SELECT set_config('enable_sort', 'off', true)").fetch_one(&mut *tx).await?;
    Ok(tx)
}

/// Plans the remaining statements of this transaction as [`begin_planning`] does.
pub async fn plan_for_values(tx: &mut PgConnection) -> Result<(), Error> {
    // Servers before version 12 don't have this setting.
    sqlx::query!(
        "SELECT CASE WHEN current_setting('plan_cache_mode', true) IS NOT NULL
                     THEN set_config('plan_cache_mode', 'force_custom_plan', true) END"
    )
    .fetch_one(tx)
    .await?;
    Ok(())
}

/// A connection outside the pool, with the pool's settings. Its changes are not recorded as events.
///
/// # Errors
///
/// When the server can't be used: nothing listens, the password is wrong, the database is missing, or sessions are
/// useless.
pub async fn connect(pool: &PgPool) -> Result<PgConnection, Error> {
    let wait = pool.options().get_acquire_timeout();
    let connected = async {
        let mut connection = pool.connect_options().connect().await?;
        let sessions = Sessions::new(wait / limits::POSTGRES_ACQUIRE_TIMEOUTS, false);
        sessions.settle_new(&mut connection).await?;
        Ok(connection)
    };
    timeout(wait, connected).await.map_err(|_| Error::PoolTimedOut)?
}

/// Connects outside the pool, because the pool retries until its time is over and then reports only that. Connects
/// twice, because a transaction pooler shows only when it hands out a session for the second time.
///
/// # Errors
///
/// As [`connect`].
pub async fn check_connection(pool: &PgPool) -> Result<(), Error> {
    connect(pool).await?.close().await?;
    connect(pool).await?.close().await
}

/// Why Postgres can't be used, as words that follow its name. Names the cause if its sessions are useless.
pub async fn trouble(pool: &PgPool) -> String {
    match timeout(limits::POSTGRES_CLOSE_TIMEOUT, check_connection(pool)).await {
        Ok(Err(Error::Configuration(why))) => why.to_string(),
        _ => "can't be reached".to_owned(),
    }
}

pub async fn facts(pool: &PgPool) -> Result<ServerFacts, Error> {
    sqlx::query_as!(
        ServerFacts,
        r#"SELECT current_setting('server_version') AS "version!",
                  current_setting('server_version_num')::integer AS "version_number!",
                  current_setting('fsync')::boolean AS "fsync!",
                  current_setting('full_page_writes')::boolean AS "full_page_writes!",
                  current_setting('synchronous_commit') AS "synchronous_commit!",
                  current_setting('synchronous_standby_names') AS "synchronous_standbys!",
                  current_setting('max_connections')::bigint
                      - current_setting('superuser_reserved_connections')::bigint
                      -- Since PostgreSQL 16.
                      - coalesce(current_setting('reserved_connections', true)::bigint, 0)
                      AS "connections_max!",
                  (SELECT count(*) FROM pg_stat_activity
                   WHERE datid IS NOT NULL AND coalesce(application_name, '') <> $1)
                      AS "connections_others!""#,
        APPLICATION_NAME,
    )
    .fetch_one(pool)
    .await
}

/// The server's clock.
pub async fn time(executor: impl PgExecutor<'_>) -> Result<DateTime<Utc>, Error> {
    sqlx::query_scalar!(r#"SELECT clock_timestamp() AS "time!""#).fetch_one(executor).await
}

/// Place of the server, without user and password: `host:5432, database name`, or the folder of a socket instead.
pub fn address(pool: &PgPool) -> String {
    let options = pool.connect_options();
    let place = match options.get_socket() {
        Some(folder) => folder.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    format!("{place}, database {database}")
}

/// Whether Postgres answers a ping. Takes at most half the time for which a caller waits for a connection.
pub async fn answers(pool: &PgPool) -> bool {
    let ping_max = pool.options().get_acquire_timeout() / limits::POSTGRES_PINGS;
    let ping = async {
        let mut unfinished = Unfinished::acquire(pool).await.ok()?;
        // A ping that is late still owes an answer, so its connection isn't returned to the pool.
        let answer = timeout(ping_max, unfinished.connection().ping()).await.ok()?;
        unfinished.finished();
        answer.ok()
    };
    // Twice the time, so that the ping above times out first and a hanging connection is noticed.
    matches!(timeout(2 * ping_max, ping).await, Ok(Some(())))
}

/// Closes the connections. Those that hang stay until the process ends.
pub async fn close(pool: &PgPool) {
    let closed = timeout(limits::POSTGRES_CLOSE_TIMEOUT, pool.close()).await;
    if closed.is_err() {
        tracing::warn!("some connections to Postgres hang and were not closed");
    }
}

/// Whether the *data* is at fault: SQLSTATE class 22 (data exception) or 23 (integrity constraint violation). A retry
/// can't help. Any other failure (an outage, a deadlock, a missing table) may pass.
pub fn is_data_error(error: &Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code.starts_with("22") || code.starts_with("23"))
}

/// True if Postgres rolled the transaction back in favour of another one: a deadlock (SQLSTATE 40P01) or a
/// serialization failure (40001). The same transaction may succeed now.
pub fn is_conflict(error: &Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code == "40001" || code == "40P01")
}

/// True if a statement waited in vain for another session's lock (SQLSTATE 55P03).
pub fn is_lock_timeout(error: &Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code == "55P03")
}

/// True if another session keeps writers from a whole table now, as a change of the schema does, or waits for such a
/// lock, so that writers queue behind it.
pub async fn has_locked_table(pool: &PgPool) -> Result<bool, Error> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM pg_locks
                          WHERE locktype = 'relation' AND pid <> pg_backend_pid()
                            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                            AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'))
                      AS "there!""#
    )
    .fetch_one(pool)
    .await
}

pub fn violated_constraint(error: &Error) -> Option<&str> {
    error.as_database_error().and_then(|error| error.constraint())
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;

    use super::*;

    #[tokio::test]
    async fn a_pool_waits_for_connections_and_tells_its_place_without_secrets() {
        bound_this_test();
        let timeout = Duration::from_secs(3);
        for (url, place) in [
            ("postgres://user:secret@db.example:5433/shop", "db.example:5433, database shop"),
            ("postgres://user:secret@db.example", "db.example:5432, database user"),
        ] {
            let pool = pool(url, 7, timeout, false).expect("a valid URL");
            assert_eq!(address(&pool), place);
            let options = pool.options();
            assert_eq!(options.get_max_connections(), 7);
            let waits = limits::POSTGRES_ACQUIRE_TIMEOUTS * timeout;
            assert_eq!(options.get_acquire_timeout(), waits);
            assert!(!options.get_test_before_acquire(), "no ping for each checkout");
        }
        assert!(pool("nonsense", 7, timeout, false).is_err());
    }

    /// The server accepts the connection, and never answers.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_hangs_is_waited_for_half_as_long_as_callers_wait_for_a_connection() {
        bound_this_test();
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let place = server.local_addr().expect("it is bound");
        let url = format!("postgres://user@{place}/shop");
        let pool = pool(&url, 1, Duration::from_secs(10), false).expect("a valid URL");
        let began = tokio::time::Instant::now();
        assert!(!answers(&pool).await);
        assert_eq!(began.elapsed().as_secs(), 10, "of 20 s");
    }
}
