//! Advisory locks of Postgres, each held by its own session.
//!
//! Postgres releases the locks when their session ends: at once when the process dies, and after a silence when the
//! machine is gone or the process is paused. So the session has to show regularly that it is alive. This doesn't work
//! through a transaction pooler, which gives a session to other clients.

use std::pin::pin;
use std::time::Duration;

use sqlx::{Connection, Error, PgConnection, PgPool};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::base::limits;
use crate::store::postgres;

pub type LockKey = (i32, i32);

/// A session outside the pool. Its locks end with it.
pub struct LockSession {
    connection: PgConnection,
    /// Time for each of its queries. After a longer silence, the locks are taken to be lost.
    patience: Duration,
}

impl LockSession {
    /// Opens a session that Postgres ends after a silence of `silence_max`.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer.
    pub async fn open(pool: &PgPool, silence_max: Duration) -> Result<Self, Error> {
        let mut connection = postgres::connect(pool).await?;
        let silence_ms = silence_max.as_millis().to_string();
        sqlx::query!("SELECT set_config('idle_session_timeout', $1, false)", silence_ms)
            .fetch_one(&mut connection)
            .await?;
        Ok(Self { connection, patience: pool.options().get_acquire_timeout() })
    }

    /// Opens a session and takes this lock. Waits for the lock for at most `wait`; `None` if another session still has
    /// it.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer.
    pub async fn with_lock(
        pool: &PgPool,
        silence_max: Duration,
        key: LockKey,
        wait: Duration,
    ) -> Result<Option<Self>, Error> {
        let until = Instant::now() + wait;
        let mut session = Self::open(pool, silence_max).await?;
        while !session.try_lock(key).await? {
            if Instant::now() >= until {
                session.close().await?;
                return Ok(None);
            }
            sleep(limits::TURN_PAUSE).await;
        }
        Ok(Some(session))
    }

    /// False if another session has the lock.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer.
    pub async fn try_lock(&mut self, (class, number): LockKey) -> Result<bool, Error> {
        let query = sqlx::query_scalar!(
            r#"SELECT pg_try_advisory_lock($1, $2) AS "taken!""#,
            class,
            number
        );
        within(self.patience, query.fetch_one(&mut self.connection)).await
    }

    /// Releases the lock.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer.
    pub async fn unlock(&mut self, (class, number): LockKey) -> Result<(), Error> {
        let query = sqlx::query!("SELECT pg_advisory_unlock($1, $2)", class, number);
        within(self.patience, query.fetch_one(&mut self.connection)).await.map(drop)
    }

    /// Runs a query of the caller.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer.
    pub async fn ask<T>(
        &mut self,
        query: impl AsyncFnOnce(&mut PgConnection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        within(self.patience, query(&mut self.connection)).await
    }

    /// Shows Postgres that the process is alive.
    ///
    /// # Errors
    ///
    /// When the session has ended.
    pub async fn ping(&mut self) -> Result<(), Error> {
        within(self.patience, self.connection.ping()).await
    }

    /// Does `work`, and shows Postgres every `period` that the process is alive.
    ///
    /// # Errors
    ///
    /// When the work fails, or the session has ended.
    pub async fn while_held<T, E: From<Error>>(
        &mut self,
        period: Duration,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut work = pin!(work);
        let mut beat = interval(period);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = beat.tick() => self.ping().await?,
            }
        }
    }

    /// Releases all locks of the session: another session can take them as soon as this returns.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer. It then releases the locks later.
    pub async fn close(mut self) -> Result<(), Error> {
        let query = sqlx::query!("SELECT pg_advisory_unlock_all()");
        within(self.patience, query.fetch_one(&mut self.connection)).await?;
        self.connection.close().await
    }
}

async fn within<T>(
    patience: Duration,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    timeout(patience, answer).await.map_err(|_| Error::PoolTimedOut)?
}
