//! Connecting to Postgres, and what its errors mean.

use std::str::FromStr;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Error, PgPool};

use crate::base::limits;

/// A pool of connections, opened when needed.
///
/// # Errors
///
/// When the URL can't be understood.
pub fn pool(url: &str, connections_max: u32) -> Result<PgPool, Error> {
    // The server ends a statement that takes too long, so that nothing waits on a hanging one.
    let statement_ms = limits::POSTGRES_STATEMENT_TIMEOUT.as_millis().to_string();
    let options = PgConnectOptions::from_str(url)?
        .application_name("flash-sale")
        .options([("statement_timeout", statement_ms.as_str())]);
    Ok(PgPoolOptions::new()
        .max_connections(connections_max)
        .acquire_timeout(limits::POSTGRES_ACQUIRE_TIMEOUT)
        // A ping for each checkout would double the round trips. A connection that has gone away is
        // noticed by its first statement, and every caller has to handle that anyway.
        .test_before_acquire(false)
        .connect_lazy_with(options))
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
