//! Why a run of a lane's jobs fails.

use redis::RedisError;

/// Why a run failed. The job is run again. A job that fails only if a store doesn't answer has no section `# Errors`.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error("Redis: {0}")]
    Redis(#[from] RedisError),
    #[error("Postgres: {0}")]
    Postgres(#[from] sqlx::Error),
    /// The lane was closed, or reopened, after its entries were read.
    #[error("the lane has a new epoch: its log is read anew")]
    Stale,
    /// Postgres lacks an order that was acknowledged, so it went back in time.
    #[error("Postgres lacks order {0}, which Redis has seen written")]
    OrderMissing(i64),
    #[error("the order log is lost: the lane is closed, and the orders are looked for elsewhere")]
    LogLost,
    /// The buyers' locks ran out before the commit.
    #[error("the buyers' locks were lost before the commit")]
    LocksLost,
}
