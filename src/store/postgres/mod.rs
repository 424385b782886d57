//! Connecting to Postgres, facts about the server, and the meaning of its errors.

// What is set on each session of Postgres, and sessions that can't be used any more.
mod sessions;

// Advisory locks of Postgres, held by a session of their own.
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

/// Name of these sessions in `pg_stat_activity`.
const APPLICATION_NAME: &str = "flash-sale";

/// Facts about a server, and its settings as these sessions have them: a role or a database may have some of its own.
#[derive(Clone, Debug)]
pub struct ServerFacts {
    /// The version, as in `15.14 (Debian 15.14-0+deb12u1)`.
    pub version: String,
    /// The version as a number: 150014.
    pub version_number: i32,
    /// `fsync`.
    pub fsync: bool,
    /// `full_page_writes`.
    pub full_page_writes: bool,
    /// `synchronous_commit`.
    pub synchronous_commit: String,
    /// `synchronous_standby_names`; empty for none.
    pub synchronous_standbys: String,
    /// Connections that are not kept for administrators.
    pub connections_max: i64,
    /// Connections in use by other programs than flash-sale.
    pub connections_others: i64,
}

/// A pool of connections, opened when needed. `timeout` is the time that the server works on one statement, and that a
/// transaction waits for its next one. A statement waits half of it for a lock ([`is_lock_timeout`]). With `events`,
/// triggers note what these sessions change.
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
        // A ping for each checkout would double the round trips. The first statement notices a connection that has
        // gone away, and every caller has to handle that anyway.
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

/// Uses this URL for each new connection; those that are open stay.
///
/// # Errors
///
/// When the URL can't be understood.
pub fn change_url(pool: &PgPool, url: &str) -> Result<(), Error> {
    pool.set_connect_options(options(url)?);
    Ok(())
}

/// Begins a transaction. A caller may be dropped at any moment: one whose client has gone away, for example.
///
/// [`sqlx::Pool::begin`] may not, in version 0.9.0 (<https://github.com/transact-rs/sqlx/issues/4385>): dropped between
/// BEGIN and the reply to it, this method gives the pool a connection with an open transaction of which sqlx doesn't
/// know. Rows that the next callers confirm on that connection are gone when one of the callers rolls back.
pub async fn begin(pool: &PgPool) -> Result<Transaction<'static, Postgres>, Error> {
    begin_with(pool, "BEGIN").await
}

/// Begins a transaction that sees all rows as they are now, and reads them by plans as [`begin_planning`] does.
pub async fn begin_snapshot(pool: &PgPool) -> Result<Transaction<'static, Postgres>, Error> {
    let mut tx = begin_with(pool, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    plan_for_values(&mut tx).await?;
    // Between two of its pages the other store may be slow.
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

/// A connection with unfinished work, which no other caller may be given: closed when it is dropped, unless it
/// [is finished](Self::finished).
pub struct Unfinished(Option<PoolConnection<Postgres>>);

impl Unfinished {
    /// Takes a connection for work that may be broken off.
    pub async fn acquire(pool: &PgPool) -> Result<Self, Error> {
        Ok(Self(Some(pool.acquire().await?)))
    }

    /// The connection.
    pub fn connection(&mut self) -> &mut PgConnection {
        self.0.as_mut().expect("only `finished` takes it, with `self`")
    }

    /// Gives the connection back to its pool.
    pub fn finished(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        drop(self.0.take().map(PoolConnection::detach));
    }
}

/// Begins a transaction whose statements are planned for the tables and the values of this moment. Statements with an
/// array need that, and those of passes that join tables or take the first rows of many.
///
/// A prepared statement otherwise keeps the plan that was good at its sixth run. On a new database that is a plan for
/// empty tables. For one row by its key Postgres takes the index even then. For an array, whose length the plan doesn't
/// know, and for the other side of a join, it reads the table from beginning to end, until the table is next analysed,
/// however many rows have come by then. Planning costs a server about 0.1 ms, too much for each statement of a request:
/// those are written so that one index fits alone.
pub async fn begin_planning(pool: &PgPool) -> Result<Transaction<'static, Postgres>, Error> {
    let mut tx = begin(pool).await?;
    plan_for_values(&mut tx).await?;
    Ok(tx)
}

/// Begins a transaction as [`begin_planning`] does, whose statements find the first rows of many by an index in which
/// they are sorted. A plan from before these rows came believes that they are few, and sorts them all for each batch.
pub async fn begin_by_index(pool: &PgPool) -> Result<Transaction<'static, Postgres>, Error> {
    let mut tx = begin_planning(pool).await?;
    sqlx::query!("SELECT set_config('enable_sort', 'off', true)").fetch_one(&mut *tx).await?;
    Ok(tx)
}

/// Has the statements in the rest of this transaction planned as by [`begin_planning`].
pub async fn plan_for_values(tx: &mut PgConnection) -> Result<(), Error> {
    // A server before version 12 has no such setting.
    sqlx::query!(
        "SELECT CASE WHEN current_setting('plan_cache_mode', true) IS NOT NULL
                     THEN set_config('plan_cache_mode', 'force_custom_plan', true) END"
    )
    .fetch_one(tx)
    .await?;
    Ok(())
}

/// A connection beside the pool, settled like those of the pool; its changes are no events.
///
/// # Errors
///
/// When the server can't be used: no listener, a wrong password, no such database, or useless sessions.
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

/// Connects beside the pool: the pool tries again until its time is over, and then reports only that. Connects twice,
/// because a pooler of transactions shows only when it gives away a session for the second time.
///
/// # Errors
///
/// As [`connect`].
pub async fn check_connection(pool: &PgPool) -> Result<(), Error> {
    connect(pool).await?.close().await?;
    connect(pool).await?.close().await
}

/// Why Postgres can't be used, in words that follow its name: the cause, where sessions are useless.
pub async fn trouble(pool: &PgPool) -> String {
    match timeout(limits::POSTGRES_CLOSE_TIMEOUT, check_connection(pool)).await {
        Ok(Err(Error::Configuration(why))) => why.to_string(),
        _ => "can't be reached".to_owned(),
    }
}

/// Facts about the server.
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

/// Place of the server, without user and password: `host:5432, database name`, or the folder of a socket.
pub fn address(pool: &PgPool) -> String {
    let options = pool.connect_options();
    let place = match options.get_socket() {
        Some(folder) => folder.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    format!("{place}, database {database}")
}

/// Whether Postgres answers, within half the time that a caller waits for a connection.
pub async fn answers(pool: &PgPool) -> bool {
    let ping_max = pool.options().get_acquire_timeout() / limits::POSTGRES_PINGS;
    let ping = async {
        let mut unfinished = Unfinished::acquire(pool).await.ok()?;
        // One that is late still waits for its answer.
        let answer = timeout(ping_max, unfinished.connection().ping()).await.ok()?;
        unfinished.finished();
        answer.ok()
    };
    // Twice the time, so that a hanging connection is noticed above.
    matches!(timeout(2 * ping_max, ping).await, Ok(Some(())))
}

/// Closes the connections; those that hang are left to the end of the process.
pub async fn close(pool: &PgPool) {
    let closed = timeout(limits::POSTGRES_CLOSE_TIMEOUT, pool.close()).await;
    if closed.is_err() {
        tracing::warn!("some connections to Postgres hang and were not closed");
    }
}

/// Whether the *data* is at fault: SQLSTATE class 22 (data exception) or 23 (integrity constraint violation). Trying
/// again can't help. Any other failure (an outage, a deadlock, a missing table) may pass.
pub fn is_data_error(error: &Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code.starts_with("22") || code.starts_with("23"))
}

/// True for the end of a transaction that Postgres has rolled back in favour of another one: a deadlock (SQLSTATE 40P01)
/// or a conflict of snapshots (40001). The same transaction may succeed now.
pub fn is_conflict(error: &Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code == "40001" || code == "40P01")
}

/// True for the error of a statement that has waited in vain for a lock of another session (SQLSTATE 55P03).
pub fn is_lock_timeout(error: &Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code == "55P03")
}

/// True if another session keeps writers from a whole table at this moment, as a change of the schema does; or if one
/// waits for that, and writers queue behind it.
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

/// The name of the constraint that refused, if one did.
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

    /// The server takes the connection, and says nothing.
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
