//! Sessions of Postgres: the settings that this code relies on are set in each session and read back.
//!
//! A role, a database or a pooler may give a session other settings than those that were asked for, and a startup
//! packet may lose some on its way. So each new connection is set up before its first statement, in one round trip.
//!
//! A good session can become useless without a broken connection: its server has become a standby, or the session began
//! while its role was read-only. So now and then one connection is set up again as it leaves the pool. If that one
//! can't be used, all connections that are older than the finding are closed as they leave the pool.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Error, PgConnection, Row};
use tokio::time::{Instant, timeout};

use crate::base::limits;
use crate::base::telemetry::LogThrottle;

/// Settings of the sessions of a pool.
pub(super) struct Sessions {
    /// Time that the server may work on one statement.
    timeout: Duration,
    /// Whether triggers record events.
    events: bool,
    began: Instant,
    /// When a session from the pool was last checked, in ms since `began`.
    checked_ms: AtomicU64,
    /// When a session was last found to be useless, in ms since `began`; 0 for never.
    useless_ms: AtomicU64,
    throttle: Mutex<LogThrottle>,
}

/// A session that can't be used. The text names the cause and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Useless(String);

impl Sessions {
    pub(super) fn new(timeout: Duration, events: bool) -> Self {
        Self {
            timeout,
            events,
            began: Instant::now(),
            checked_ms: AtomicU64::default(),
            useless_ms: AtomicU64::default(),
            throttle: Mutex::default(),
        }
    }

    /// Sets up a new session.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`], which names the cause, when the session is useless; otherwise when Postgres doesn't
    /// answer.
    pub(super) async fn settle_new(&self, connection: &mut PgConnection) -> Result<(), Error> {
        let settled = self.settle(connection, true).await;
        if let Err(error) = &settled
            && self.throttle.lock().is_ok_and(|mut throttle| throttle.allows())
        {
            tracing::warn!(%error, "a new connection to Postgres can't be used");
        }
        settled
    }

    /// Sets up a session of this age again, if a check is due. False if it is older than the last finding of a useless
    /// session.
    ///
    /// # Errors
    ///
    /// When the session can't be used. It may still owe an answer, so it has to be closed without sending anything.
    pub(super) async fn is_good(
        &self,
        connection: &mut PgConnection,
        age: Duration,
    ) -> Result<bool, Error> {
        let now = self.now_ms();
        let useless = self.useless_ms.load(Ordering::Relaxed);
        if useless > 0 && age > Duration::from_millis(now.saturating_sub(useless)) {
            return Ok(false);
        }
        let checked = self.checked_ms.load(Ordering::Relaxed);
        let is_due =
            Duration::from_millis(now.saturating_sub(checked)) >= limits::SESSION_CHECK_PERIOD;
        let takes_turn = || {
            self.checked_ms
                .compare_exchange(checked, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        };
        if !is_due || !takes_turn() {
            return Ok(true);
        }
        let settled = self.settle(connection, false).await;
        // A slow session says nothing about the others.
        if let Err(error) = &settled
            && !matches!(error, Error::PoolTimedOut)
        {
            tracing::warn!(%error, "connections to Postgres can't be used any more, and are closed");
            self.useless_ms.store(self.now_ms().max(1), Ordering::Relaxed);
        }
        settled.map(|()| true)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    async fn settle(&self, connection: &mut PgConnection, is_new: bool) -> Result<(), Error> {
        let query = sqlx::raw_sql(AssertSqlSafe(self.query())).fetch_one(connection);
        // No time-out of the server bounds this statement yet.
        let row = timeout(self.timeout, query).await.map_err(|_| Error::PoolTimedOut)??;
        let of = |column: &str| row.try_get::<Option<String>, _>(column);
        let useless = |why: &str| Err(Error::Configuration(Useless(why.to_owned()).into()));
        if is_new && of("former")?.is_some_and(|former| !former.is_empty()) {
            return useless(
                "a pooler stands before Postgres and gives one session to several clients (transaction pooling), so that nothing holds that is set for a session; let it pool sessions (pgbouncer: pool_mode = session)",
            );
        }
        if of("standby")?.as_deref() != Some("false") {
            return useless("Postgres is a standby, which takes no writes; name its primary");
        }
        if of("read_only")?.as_deref() != Some("off") {
            return useless(
                "default_transaction_read_only is on for us; set it to off for this role and database",
            );
        }
        let encoding = of("encoding")?.unwrap_or_default();
        if encoding != "UTF8" {
            return useless(&format!(
                "the database has the encoding {encoding}, which can't hold all texts; make it anew with ENCODING 'UTF8'"
            ));
        }
        Ok(())
    }

    /// `set_config` returns the value that is in force.
    fn query(&self) -> String {
        let timeout_ms = self.timeout.as_millis();
        let events = if self.events { "on" } else { "off" };
        // Shorter than the time-out of a statement, so that a locked row can be told from a slow server.
        let lock_timeout_ms = (self.timeout / limits::POSTGRES_LOCK_TIMEOUTS).as_millis();
        format!(
            "SELECT current_setting('flash_sale.session', true) AS former,
                    set_config('flash_sale.session', 'taken', false),
                    set_config('flash_sale.events', '{events}', false),
                    -- The server ends a statement that takes too long, so that no caller waits on a hanging one; and
                    -- the transaction of a process that is paused or cut off, whose rows all others need.
                    set_config('statement_timeout', '{timeout_ms}', false),
                    set_config('lock_timeout', '{lock_timeout_ms}', false),
                    set_config('idle_in_transaction_session_timeout', '{timeout_ms}', false),
                    set_config('default_transaction_isolation', 'read committed', false),
                    set_config('search_path', 'public', false),
                    set_config('TimeZone', 'UTC', false),
                    set_config('client_encoding', 'UTF8', false),
                    set_config('standard_conforming_strings', 'on', false),
                    pg_is_in_recovery()::text AS standby,
                    current_setting('transaction_read_only') AS read_only,
                    current_setting('server_encoding') AS encoding"
        )
    }
}
