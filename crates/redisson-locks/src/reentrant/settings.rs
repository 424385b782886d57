//! Times and counts of re-entrant locks.

use std::time::Duration;

/// Times and counts of re-entrant locks. Clients of the same locks may use different ones.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Time for which a lock outlives a holder that died. It is renewed at a third of this. Default: 30 s, as in
    /// Redisson.
    pub lease: Duration,
    /// The longest lease that any client takes on these locks. A longer one means that a server's clock was set back;
    /// it is shortened to `lease`. Default: `None`, leases are never shortened.
    pub lease_max: Option<Duration>,
    /// Time for a renewal call to be answered. Three should fit into a lease. Default: 2 s.
    pub renewal_timeout: Duration,
    /// Locks whose leases one call renews. Default: 100.
    pub renewal_locks_max: usize,
    /// Time for a release request to be answered before it is repeated. Default: 1 s.
    pub release_timeout: Duration,
    /// Pause before a release request is repeated. Default: 100 ms.
    pub release_pause: Duration,
    /// Most release requests that are sent for one guard. Default: 3.
    pub release_tries_max: u32,
    /// Time for which the latch of a release stays in Redis. After that, the request is not repeated. Default: 10 s.
    pub latch: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            lease_max: None,
            renewal_timeout: Duration::from_secs(2),
            renewal_locks_max: 100,
            release_timeout: Duration::from_secs(1),
            release_pause: Duration::from_millis(100),
            release_tries_max: 3,
            latch: Duration::from_secs(10),
        }
    }
}
