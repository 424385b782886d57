//! Reasons why a pass of a lane breaks off.

use redis::RedisError;

/// Reason why a pass broke off. The pass will be repeated. A pass whose only error is that a store doesn't answer has no
/// section `# Errors`.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// Redis didn't answer.
    #[error("Redis: {0}")]
    Redis(#[from] RedisError),
    /// Postgres didn't answer.
    #[error("Postgres: {0}")]
    Postgres(#[from] sqlx::Error),
    /// The lane was closed, or opened again, since its entries were read.
    #[error("the lane has a new epoch: its log is read anew")]
    Stale,
    /// Postgres lacks an order that was acknowledged: it went back in time.
    #[error("Postgres lacks order {0}, which Redis has seen written")]
    OrderMissing(i64),
    /// Redis has lost the log.
    #[error("the order log is lost: the lane is closed, and the orders are looked for elsewhere")]
    LogLost,
    /// The buyers' locks ran out before the commit.
    #[error("the buyers' locks were lost before the commit")]
    LocksLost,
}
