//! Owner of the table `id_ceilings`: the numbers below which Redis may hand out.

use std::time::Duration;

use sqlx::PgPool;

/// Numbers of a sequence that no other caller is given, from the one after `after` to `last`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Granted {
    /// The number before the first one.
    pub after: i64,
    /// The last number: the new ceiling.
    pub last: i64,
}

/// Ceilings of sequences, by the sequence's name.
#[derive(Clone)]
pub struct Ceilings {
    pool: PgPool,
    /// Time in which Postgres has to answer.
    timeout: Duration,
}

impl Ceilings {
    /// The ceilings in this database, which has `timeout` to answer.
    pub fn new(pool: PgPool, timeout: Duration) -> Self {
        Self { pool, timeout }
    }

    /// The ceiling of a sequence; `None` if it has none.
    pub async fn of(&self, sequence: &str) -> sqlx::Result<Option<i64>> {
        sqlx::query_scalar!("SELECT ceiling FROM id_ceilings WHERE sequence = $1", sequence)
            .fetch_optional(&self.pool)
            .await
    }

    /// Raises a ceiling by `numbers`. What is granted lies above the old ceiling, and above `taken`, the last number that
    /// a sequence without a ceiling may have handed out.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer. The ceiling may have been raised: its numbers are left out then.
    pub async fn raise(&self, sequence: &str, taken: i64, numbers: i64) -> sqlx::Result<Granted> {
        let raised = sqlx::query_scalar!(
            "INSERT INTO id_ceilings (sequence, ceiling) VALUES ($1, $2::bigint + $3::bigint)
             ON CONFLICT (sequence) DO UPDATE
             SET ceiling = greatest(id_ceilings.ceiling, $2) + $3, updated_at = now()
             RETURNING ceiling",
            sequence,
            taken,
            numbers,
        )
        .fetch_one(&self.pool);
        let last = tokio::time::timeout(self.timeout, raised).await;
        let last = last.map_err(|_| sqlx::Error::PoolTimedOut)??;
        Ok(Granted { after: last - numbers, last })
    }
}
