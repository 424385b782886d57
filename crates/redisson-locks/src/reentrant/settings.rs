//! Times and counts of re-entrant locks.

use std::time::Duration;

/// Times and counts of re-entrant locks. Clients of the same locks may choose their own.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Time for which a lock outlives a holder that died; renewed at a third of it. Default: 30 s, as Redisson's.
    pub lease: Duration,
    /// The longest lease that any client takes on these locks. A longer one is the work of a server's clock that was set
    /// back, and is cut to `lease`. Default: `None`, no lease is cut.
    pub lease_max: Option<Duration>,
    /// Time in which a call that renews leases has to be answered; three should fit into a lease. Default: 2 s.
    pub renewal_timeout: Duration,
    /// Locks whose leases are renewed by one call. Default: 100.
    pub renewal_locks_max: usize,
    /// Time in which one request to release has to be answered, before the request is sent again. Default: 1 s.
    pub release_timeout: Duration,
    /// Pause before a request to release is sent again. Default: 100 ms.
    pub release_pause: Duration,
    /// Requests to release that are sent for one guard at most. Default: 3.
    pub release_tries_max: u32,
    /// Time for which the latch of a release stays in Redis; no request is sent again later. Default: 10 s.
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
