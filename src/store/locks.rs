//! The locks of the crate `redisson-locks`, over the service's connection to Redis and with its limits.

use std::sync::Arc;
use std::time::Duration;

use redis::RedisFuture;
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redisson_locks::{ReentrantLocks, Settings, Subscribe, Tasks};

use super::redis::Redis;
use crate::base::limits;
use crate::base::shutdown::Shutdown;

/// Re-entrant locks with leases of `lease`. No client takes a longer lease on them than `lease_max`. `shutdown` owns
/// their tasks.
pub fn reentrant_locks(
    redis: &Redis,
    lease: Duration,
    lease_max: Option<Duration>,
    shutdown: &Shutdown,
) -> ReentrantLocks {
    let settings = settings(redis.timeout(), lease, lease_max);
    let tasks = Tasks::tracked(shutdown.stop_token().clone(), shutdown.tracker().clone());
    ReentrantLocks::new(redis.clone(), redis.clone(), settings, tasks)
}

fn settings(redis_timeout: Duration, lease: Duration, lease_max: Option<Duration>) -> Settings {
    Settings {
        lease,
        lease_max,
        renewal_timeout: limits::LOCK_RENEWAL_TIMEOUT,
        renewal_locks_max: limits::LOCK_RENEWAL_BATCH_MAX,
        // One time-out to connect, and one for the answer.
        release_timeout: 2 * redis_timeout,
        release_pause: limits::REDIS_RECONNECT_PAUSE,
        release_tries_max: limits::LOCK_RELEASE_TRIES,
        latch: limits::LOCK_LATCH_KEPT,
    }
}

/// The connection leads to a master, like the one for commands. It carries only subscriptions, so it doesn't matter
/// which run of Redis it leads to.
impl Subscribe for Redis {
    fn open(&self, heard: Arc<dyn AsyncPushSender>) -> RedisFuture<'_, MultiplexedConnection> {
        Box::pin(async move { Ok(self.listening_connection(heard).await?.0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reentrant_locks_have_the_limits_of_the_service() {
        let seconds = Duration::from_secs;
        let settings = settings(seconds(3), seconds(6), Some(seconds(60)));
        assert_eq!((settings.lease, settings.lease_max), (seconds(6), Some(seconds(60))));
        assert_eq!(settings.renewal_locks_max, limits::LOCK_RENEWAL_BATCH_MAX);
        assert_eq!(settings.release_tries_max, limits::LOCK_RELEASE_TRIES);
        assert_eq!(settings.release_timeout, seconds(6), "to connect, and to be answered");
    }
}
