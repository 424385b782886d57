//! The places of a listener's connections, and when a connection is closed.
//!
//! Requests and replies only record the time of their last activity. They take it from a clock that one task sets
//! whenever it checks all connections, so no request reads a clock or sets a timer of its own. The same check finds the
//! connections that are overdue ([`Connection::overdue`]).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::base::limits;
use crate::base::telemetry::{ConnectionEnd, LogThrottle, Metrics};

pub struct Places {
    metrics: Arc<Metrics>,
    free: Arc<Semaphore>,
    open: Mutex<Vec<Weak<Connection>>>,
    began: Instant,
    /// Milliseconds since `began`, as of the last check.
    now_ms: AtomicU64,
    full_log: Mutex<LogThrottle>,
}

impl Places {
    /// Places for `connections_max` connections.
    pub fn new(metrics: Arc<Metrics>, connections_max: u32) -> Arc<Self> {
        let places = usize::try_from(connections_max).unwrap_or(usize::MAX);
        Arc::new(Self {
            metrics,
            free: Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS))),
            open: Mutex::default(),
            began: Instant::now(),
            now_ms: AtomicU64::default(),
            full_log: Mutex::default(),
        })
    }

    /// Waits for a place for a new connection. If all are taken, the connection that has been quiet for longest is
    /// closed. While no connection is quiet, the new one waits, and further ones wait in the kernel's queue.
    pub async fn free(&self) -> OwnedSemaphorePermit {
        loop {
            if let Ok(place) = self.free.clone().try_acquire_owned() {
                return place;
            }
            if !self.close_quietest() && self.full_log.lock().is_ok_and(|mut log| log.allows()) {
                tracing::warn!(
                    "all connections have requests under way, and further clients wait; raise --connections-max if the machine has room"
                );
            }
            let freed = timeout(limits::CONNECTION_CHECK_PERIOD, self.free.clone().acquire_owned());
            if let Ok(Ok(place)) = freed.await {
                return place;
            }
        }
    }

    /// Registers a connection. One that the kernel had accepted before a stop has no place.
    pub fn connection(
        self: &Arc<Self>,
        place: Option<OwnedSemaphorePermit>,
        end: CancellationToken,
    ) -> Arc<Connection> {
        let connection = Arc::new(Connection {
            places: self.clone(),
            _place: place,
            requests: AtomicU32::default(),
            replies: Default::default(),
            moved_at_ms: self.now_ms.load(Relaxed).into(),
            served: AtomicBool::default(),
            end,
        });
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.push(Arc::downgrade(&connection));
        self.metrics.connections.increment(1);
        self.metrics.tally.connections.0.add(1);
        connection
    }

    /// Checks all connections in each period, and closes those that are overdue.
    pub async fn watch(self: Arc<Self>, stop: CancellationToken) {
        let mut checks = tokio::time::interval(limits::CONNECTION_CHECK_PERIOD);
        while stop.run_until_cancelled(checks.tick()).await.is_some() {
            let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.now_ms.store(now_ms, Relaxed);
            for connection in self.open() {
                if let Some(reason) = connection.overdue(now_ms) {
                    connection.close(reason);
                }
            }
        }
    }

    /// Returns false if no connection is quiet.
    fn close_quietest(&self) -> bool {
        let now_ms = self.now_ms.load(Relaxed);
        let may_go = |connection: &Arc<Connection>| {
            connection.requests.load(Relaxed) == 0
                && connection.quiet(now_ms) >= limits::EVICTED_AFTER
        };
        let quiet = self.open().into_iter().filter(may_go);
        let quietest = quiet.max_by_key(|connection| connection.quiet(now_ms));
        quietest.inspect(|connection| connection.close(ConnectionEnd::Room)).is_some()
    }

    /// The connections that haven't been told to end.
    fn open(&self) -> Vec<Arc<Connection>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|connection| connection.strong_count() > 0);
        let open = open.iter().filter_map(Weak::upgrade);
        open.filter(|connection| !connection.end.is_cancelled()).collect()
    }

    /// The number of the current turn of [`limits::REPLY_TURN_MS`], modulo 3.
    fn turn(&self) -> usize {
        usize::try_from(self.now_ms.load(Relaxed) / limits::REPLY_TURN_MS % 3).unwrap_or(0)
    }
}

/// A connection. Dropping it frees its place.
pub struct Connection {
    places: Arc<Places>,
    _place: Option<OwnedSemaphorePermit>,
    /// Requests whose reply has not begun, and streams that have not ended.
    requests: AtomicU32,
    /// Replies that the client hasn't read to the end, by the turn in which it last read a part.
    replies: [AtomicU32; 3],
    /// Time of the last activity, on the clock of [`Places`].
    moved_at_ms: AtomicU64,
    /// Whether a request has ever come.
    served: AtomicBool,
    /// Cancelled when the connection must end.
    pub end: CancellationToken,
}

impl Connection {
    fn moves(&self) {
        self.moved_at_ms.store(self.places.now_ms.load(Relaxed), Relaxed);
    }

    fn quiet(&self, now_ms: u64) -> Duration {
        Duration::from_millis(now_ms.saturating_sub(self.moved_at_ms.load(Relaxed)))
    }

    /// Why the connection has to be closed now, if it has to be. A request under way needs no exception: it is answered
    /// long before its connection counts as idle.
    fn overdue(&self, now_ms: u64) -> Option<ConnectionEnd> {
        let two_turns_ago = (self.places.turn() + 1) % 3;
        if self.replies[two_turns_ago].load(Relaxed) > 0 {
            return Some(ConnectionEnd::Unread);
        }
        let served = self.served.load(Relaxed);
        let kept = if served { limits::KEEP_ALIVE } else { limits::HEADER_READ_TIMEOUT };
        (self.quiet(now_ms) >= kept).then_some(ConnectionEnd::Idle)
    }

    fn close(&self, reason: ConnectionEnd) {
        self.places.metrics.count_closed_connection(reason);
        self.end.cancel();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.places.metrics.connections.decrement(1);
        self.places.metrics.tally.connections.1.add(1);
    }
}

/// A request, and then its reply, until the client has read all of it.
pub struct Exchange {
    connection: Arc<Connection>,
    /// Whether it counts among the connection's `requests`.
    is_busy: bool,
    /// Turn in which the client last read a part of the reply.
    turn: Option<usize>,
}

impl Exchange {
    /// Records that a request has come.
    pub fn begins(connection: &Arc<Connection>) -> Self {
        connection.requests.fetch_add(1, Relaxed);
        connection.served.store(true, Relaxed);
        connection.moves();
        Self { connection: connection.clone(), is_busy: true, turn: None }
    }

    /// Records that the reply begins. A stream keeps the connection busy until it ends.
    pub fn is_answered(&mut self, streams: bool) {
        if !streams {
            self.is_busy = false;
            self.connection.requests.fetch_sub(1, Relaxed);
        }
        self.moves();
    }

    /// Records that the client reads a part of the reply.
    pub fn moves(&mut self) {
        self.connection.moves();
        let turn = self.connection.places.turn();
        if self.turn != Some(turn) {
            self.connection.replies[turn].fetch_add(1, Relaxed);
            self.leave_turn();
            self.turn = Some(turn);
        }
    }

    fn leave_turn(&self) {
        if let Some(turn) = self.turn {
            self.connection.replies[turn].fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.leave_turn();
        self.connection.requests.fetch_sub(self.is_busy.into(), Relaxed);
        self.connection.moves();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After so many milliseconds without activity: a connection without a request, one whose request was answered, and
    /// one whose reply isn't read.
    #[test]
    fn a_connection_on_which_nothing_moves_ends() {
        let metrics = Metrics::new([].into_iter(), [].into_iter()).expect("metrics");
        let places = Places::new(Arc::new(metrics), 10);
        let ms = |time: Duration| u64::try_from(time.as_millis()).expect("a short time");
        let (head, kept) = (ms(limits::HEADER_READ_TIMEOUT), ms(limits::KEEP_ALIVE));
        let (unread, idle) = (Some(ConnectionEnd::Unread), Some(ConnectionEnd::Idle));
        for (what, now_ms, silent, served, untaken) in [
            ("early", head - 1, None, None, None),
            ("no head", head, idle, None, None),
            ("a turn later", 2 * limits::REPLY_TURN_MS - 1, idle, None, None),
            ("two turns later", 2 * limits::REPLY_TURN_MS, idle, None, unread),
            ("no other request", kept, idle, idle, unread),
        ] {
            places.now_ms.store(0, Relaxed);
            let connections = [(); 3].map(|()| places.connection(None, CancellationToken::new()));
            let mut exchanges = connections[1..].iter().map(Exchange::begins).collect::<Vec<_>>();
            exchanges.iter_mut().for_each(|exchange| exchange.is_answered(false));
            exchanges.remove(0);
            places.now_ms.store(now_ms, Relaxed);
            let ends = connections.map(|connection| connection.overdue(now_ms));
            assert_eq!(ends, [silent, served, untaken], "{what}");
        }
    }
}
