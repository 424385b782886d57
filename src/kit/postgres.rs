//! Connecting to Postgres, and what its errors mean.

use std::str::FromStr;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, Error, PgPool};
use tokio::time::timeout;

use crate::base::limits;

/// A pool of connections, opened when needed.
///
/// # Errors
///
/// When the URL can't be understood.
pub fn pool(url: &str, connections_max: u32) -> Result<PgPool, Error> {
    // The server ends a statement that takes too long, so that nothing waits on a hanging one.
    let statement_ms = limits::POSTGRES_STATEMENT_TIMEOUT.as_millis().to_string();
    // And the transaction of a process that is paused or cut off: everybody else needs its rows.
    let idle_ms = limits::POSTGRES_IDLE_IN_TRANSACTION_TIMEOUT.as_millis().to_string();
    let options = PgConnectOptions::from_str(url)?.application_name("flash-sale").options([
        ("statement_timeout", statement_ms.as_str()),
        ("idle_in_transaction_session_timeout", idle_ms.as_str()),
    ]);
    Ok(PgPoolOptions::new()
        .max_connections(connections_max)
        .acquire_timeout(limits::POSTGRES_ACQUIRE_TIMEOUT)
        // A ping for each checkout would double the round trips. A connection that has gone away is
        // noticed by its first statement, and every caller has to handle that anyway.
        .test_before_acquire(false)
        .connect_lazy_with(options))
}

/// Connects once, beside the pool: the pool tries again until its time is over, and then says only that.
///
/// # Errors
///
/// Why the server can't be used: nobody listens, a wrong password, no such database.
pub async fn connect_once(pool: &PgPool) -> Result<(), Error> {
    let options = pool.connect_options();
    let connected = timeout(limits::POSTGRES_ACQUIRE_TIMEOUT, options.connect()).await;
    connected.map_err(|_| Error::PoolTimedOut)??.close().await
}

/// Whether Postgres answers, within [`limits::POSTGRES_PING_TIMEOUT`].
pub async fn answers(pool: &PgPool) -> bool {
    let ping = async {
        let mut connection = pool.acquire().await.ok()?;
        match timeout(limits::POSTGRES_PING_TIMEOUT, connection.ping()).await {
            Ok(answer) => answer.ok(),
            Err(_) => {
                // Still waits for its answer: closed, so that nobody is given it in this state.
                drop(connection.detach());
                None
            }
        }
    };
    // Twice the time, so that a hanging connection is found out above.
    matches!(timeout(2 * limits::POSTGRES_PING_TIMEOUT, ping).await, Ok(Some(())))
}

/// Closes the connections; those that hang are left to the end of the process.
pub async fn close(pool: &PgPool) {
    let closed = timeout(limits::POSTGRES_CLOSE_TIMEOUT, pool.close()).await;
    if closed.is_err() {
        tracing::warn!("some connections to Postgres hang and were not closed");
    }
}

/// Whether the *data* is at fault: SQLSTATE class 22 (data exception) or 23 (integrity constraint
/// violation). Trying again can't help. Everything else (an outage, a deadlock, a missing table) may
/// pass.
pub fn is_data_error(error: &Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code.starts_with("22") || code.starts_with("23"))
}

/// The name of the constraint that said no, if one did.
pub fn violated_constraint(error: &Error) -> Option<&str> {
    error.as_database_error().and_then(|error| error.constraint())
}
