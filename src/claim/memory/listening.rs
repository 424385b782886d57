//! Whether this process is told of all units that are added to sales. Only then are its memories of sales used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use crate::base::limits;
use crate::store::redis::ServerId;

/// Version of a sale, for which a memory holds. While none of these fields changes, no further user becomes a buyer of
/// a sold-out sale, and no buyer ceases to be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaleVersion {
    /// The run of Redis: a restart may have brought older data back.
    pub server: ServerId,
    /// Epoch that the script was given.
    pub epoch: i64,
    /// How often units were added.
    pub restocks: i64,
}

impl SaleVersion {
    /// Whether this version is certainly the later one: units were added in between.
    pub fn is_later_than(&self, other: &Self) -> bool {
        self.server == other.server && self.epoch == other.epoch && self.restocks > other.restocks
    }
}

/// The connection on which this process is told of added units.
pub struct Listening {
    connection: ArcSwapOption<Connection>,
    /// Time up to which every message on it has arrived, in ms since `started`.
    heard_ms: AtomicU64,
    /// Origin of all times in ms.
    started: Instant,
}

/// A connection that is subscribed to added units.
struct Connection {
    server: ServerId,
    /// Time from which on no message is missed.
    since: Instant,
    /// Cleared by the connection when it ends.
    connected: Arc<AtomicBool>,
}

impl Default for Listening {
    fn default() -> Self {
        Self {
            connection: ArcSwapOption::empty(),
            heard_ms: AtomicU64::new(0),
            started: Instant::now(),
        }
    }
}

impl Listening {
    /// From now on the process is told of all added units, on a connection to this run of Redis, until the connection
    /// clears `connected`.
    pub fn begin(&self, server: ServerId, connected: Arc<AtomicBool>) {
        let since = Instant::now();
        self.heard_ms.store(self.ms(since), Ordering::Relaxed);
        self.connection.store(Some(Arc::new(Connection { server, since, connected })));
    }

    /// From now on, units may be added without notice.
    pub fn end(&self) {
        self.connection.store(None);
    }

    /// Notes that Redis has answered a question that was asked on the connection at this time: the messages about all
    /// units added before then have arrived.
    pub fn heard(&self, asked_at: Instant) {
        self.heard_ms.fetch_max(self.ms(asked_at), Ordering::Relaxed);
    }

    /// Whether there is a connection, which may have ended by now.
    pub fn has_begun(&self) -> bool {
        self.connection.load().is_some()
    }

    /// Whether the messages about all units added up to a moment ago have arrived.
    pub fn hears(&self, now_ms: u64) -> bool {
        let connected = |connection: &Arc<Connection>| connection.connected.load(Ordering::Acquire);
        self.connection.load().as_ref().is_some_and(connected)
            && age(now_ms, &self.heard_ms) < limits::RETURNS_HEARD_MAX
    }

    /// Whether the connection leads to this run of Redis, and has missed nothing since this time.
    pub fn heard_all(&self, server: &ServerId, since: Instant) -> bool {
        self.connection
            .load()
            .as_ref()
            .is_some_and(|connection| connection.server == *server && connection.since <= since)
    }

    /// Milliseconds since `started`.
    pub fn ms(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.started).as_millis()).unwrap_or(u64::MAX)
    }
}

/// Time since a moment; both in ms since the same origin.
pub fn age(now_ms: u64, then_ms: &AtomicU64) -> Duration {
    Duration::from_millis(now_ms.saturating_sub(then_ms.load(Ordering::Relaxed)))
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;
    use tokio::time::advance;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn version(server: &str, epoch: i64, restocks: i64) -> SaleVersion {
        SaleVersion { server: ServerId::named(server), epoch, restocks }
    }

    fn connected() -> Arc<AtomicBool> {
        Arc::new(AtomicBool::new(true))
    }

    #[test]
    fn a_version_is_later_than_another_of_its_server_and_epoch_with_fewer_restocks() {
        for (other, is_later) in [
            (version("a", 7, 2), true),
            (version("a", 7, 3), false),
            (version("a", 7, 4), false),
            (version("b", 7, 2), false),
            (version("a", 6, 2), false),
            (version("a", 8, 2), false),
        ] {
            assert_eq!(version("a", 7, 3).is_later_than(&other), is_later, "{other:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn listening_hears_until_redis_has_been_silent_for_too_long() {
        bound_this_test();
        let listening = Listening::default();
        let hears = || (listening.has_begun(), listening.hears(listening.ms(Instant::now())));
        advance(limits::RETURNS_HEARD_MAX * 5).await;
        assert_eq!(hears(), (false, false));
        let connection = connected();
        listening.begin(ServerId::named("a"), connection.clone());
        assert_eq!(hears(), (true, true));
        advance(limits::RETURNS_HEARD_MAX - MS).await;
        assert_eq!(hears(), (true, true));
        advance(MS).await;
        assert_eq!(hears(), (true, false), "no answer for so long");

        let earlier = Instant::now() - limits::RETURNS_HEARD_MAX / 2;
        let now = Instant::now();
        listening.heard(now);
        listening.heard(earlier);
        advance(limits::RETURNS_HEARD_MAX - MS).await;
        assert_eq!(hears(), (true, true), "an older answer takes nothing back");
        connection.store(false, Ordering::Release);
        assert_eq!(hears(), (true, false), "the connection has ended");
        listening.begin(ServerId::named("a"), connected());
        assert_eq!(hears(), (true, true));
        listening.end();
        assert_eq!(hears(), (false, false));
    }

    #[tokio::test(start_paused = true)]
    async fn listening_has_heard_all_of_its_server_since_it_began() {
        bound_this_test();
        let listening = Listening::default();
        let server = ServerId::named("a");
        let before = Instant::now();
        assert!(!listening.heard_all(&server, before));
        advance(MS).await;
        listening.begin(server.clone(), connected());
        let since = Instant::now();
        assert!(listening.heard_all(&server, since) && listening.heard_all(&server, since + MS));
        assert!(!listening.heard_all(&server, before), "units may have come back before");
        assert!(!listening.heard_all(&ServerId::named("b"), since), "another Redis");
        listening.end();
        assert!(!listening.heard_all(&server, since));
    }

    #[tokio::test(start_paused = true)]
    async fn times_are_ms_since_the_start() {
        bound_this_test();
        let listening = Listening::default();
        let started = Instant::now();
        assert_eq!(listening.ms(started + MS * 1_500), 1_500);
        assert_eq!(listening.ms(started - MS), 0);
        assert_eq!(age(10, &AtomicU64::new(3)), MS * 7);
        assert_eq!(age(3, &AtomicU64::new(10)), Duration::ZERO);
    }
}
