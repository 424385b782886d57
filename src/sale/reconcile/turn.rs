//! The turn to compare: one comparison at a time, of all processes together.
//!
//! # Model
//!
//! A comparison holds an advisory lock of Postgres, in a transaction that does nothing else. The transaction ends with
//! its connection, so a process that dies frees the turn at once. A process that is paused or cut off loses it after
//! [`limits::TURN_SILENCE_MAX`], when Postgres ends a transaction without a statement: the comparison says in time that
//! it lives, and breaks off if nothing hears it.
//!
//! # What is not promised
//!
//! A process that wakes from a pause may read on for a moment beside the next comparison. That costs time and harms
//! nothing, because a comparison only reads, and each repair is safe beside any other.

use std::pin::pin;
use std::time::Duration;

use sqlx::{Connection, PgConnection, PgPool};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::base::limits;
use crate::kit::postgres;
use crate::sale::Failure;

/// Advisory lock of the process that compares: `compare` in ASCII.
const LOCK: i64 = 0x0063_6f6d_7061_7265;

/// The turn to compare. Ends with its connection, which is none of the pool: requests need those.
pub struct Turn {
    connection: PgConnection,
}

impl Turn {
    /// Waits for the turn at most so long. `None` while another comparison goes on.
    pub async fn take(pool: &PgPool, wait: Duration) -> sqlx::Result<Option<Self>> {
        let until = Instant::now() + wait;
        let mut connection = within(postgres::connect(pool)).await?;
        while !within(try_take(&mut connection)).await? {
            if Instant::now() >= until {
                connection.close().await?;
                return Ok(None);
            }
            sleep(limits::TURN_PAUSE).await;
        }
        Ok(Some(Self { connection }))
    }

    /// Works while the turn is held.
    ///
    /// # Errors
    ///
    /// When the work fails, or Postgres has ended the turn.
    pub async fn hold<T>(
        &mut self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut work = pin!(work);
        let mut beat = interval(limits::TURN_BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = beat.tick() => within(self.connection.ping()).await?,
            }
        }
    }

    /// Ends the turn: the next one can be taken as soon as this is done. A connection that only closes frees it later.
    pub async fn end(mut self) -> sqlx::Result<()> {
        within(sqlx::raw_sql("ROLLBACK").execute(&mut self.connection)).await?;
        self.connection.close().await
    }
}

/// The answer of a Postgres that may be cut off: a silence of this length has cost the turn.
async fn within<T>(answer: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    let answered = timeout(limits::TURN_SILENCE_MAX, answer).await;
    answered.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

async fn try_take(connection: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::raw_sql("BEGIN").execute(&mut *connection).await?;
    let taken = sqlx::query_scalar!(
        r#"SELECT pg_try_advisory_xact_lock($1) AS "taken!"
           FROM set_config('idle_in_transaction_session_timeout', $2, true)"#,
        LOCK,
        limits::TURN_SILENCE_MAX.as_millis().to_string(),
    )
    .fetch_one(&mut *connection)
    .await?;
    if !taken {
        sqlx::raw_sql("ROLLBACK").execute(connection).await?;
    }
    Ok(taken)
}
