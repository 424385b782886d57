//! The places of a listener, and what ends a connection that only holds one.
//!
//! Requests only note moments, from a clock that one look at all connections sets a few times a second; so they ask no
//! clock and set no timer. The look compares ([`Notes::overdue`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::base::limits;
use crate::base::telemetry::{ConnectionEnd, LogThrottle, Metrics};

/// The places of one listener.
pub struct Places {
    metrics: Arc<Metrics>,
    keep_alive: Duration,
    free: Arc<Semaphore>,
    open: Mutex<HashMap<u64, Arc<Notes>>>,
    next: AtomicU64,
    shared: Arc<Shared>,
    full_log: Mutex<LogThrottle>,
}

/// A place, free again when this is dropped.
pub struct Place {
    places: Arc<Places>,
    number: u64,
    /// What is known of the connection.
    pub notes: Arc<Notes>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// What all connections of a listener share.
struct Shared {
    began: Instant,
    /// Milliseconds since then, as of the last look. Never 0.
    now_ms: AtomicU64,
    /// Bytes of replies that were made for one client each, and that these have not asked for.
    unread: AtomicUsize,
}

impl Shared {
    fn set(&self) {
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX) + 1;
        self.now_ms.store(now_ms, Relaxed);
    }

    fn now_ms(&self) -> u64 {
        self.now_ms.load(Relaxed)
    }

    fn since(&self, moment_ms: u64) -> Duration {
        Duration::from_millis(self.now_ms().saturating_sub(moment_ms))
    }

    /// The number of the present turn of [`limits::REPLY_TURN`].
    fn turn(&self) -> usize {
        usize::try_from(self.now_ms() / limits::REPLY_TURN_MS).unwrap_or(0)
    }
}

impl Places {
    /// As many places as that, none of them taken.
    pub fn new(metrics: Arc<Metrics>, connections_max: usize, keep_alive: Duration) -> Self {
        Self {
            metrics,
            keep_alive,
            free: Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS))),
            open: Mutex::default(),
            next: AtomicU64::new(0),
            shared: Arc::new(Shared {
                began: Instant::now(),
                now_ms: AtomicU64::new(1),
                unread: AtomicUsize::default(),
            }),
            full_log: Mutex::default(),
        }
    }

    /// A place for a new connection. If there is none, the one that has been quiet for the longest time is closed; while
    /// none is quiet, the new one waits, and others wait in the kernel's queue.
    pub async fn place(self: &Arc<Self>, end: CancellationToken) -> Place {
        loop {
            if let Ok(permit) = self.free.clone().try_acquire_owned() {
                return self.taken(Some(permit), end);
            }
            if !self.close_quiet() && self.full_log.lock().is_ok_and(|mut log| log.allows()) {
                tracing::warn!(
                    "all connections have requests under way, and further clients wait; raise --connections-max if the machine has room"
                );
            }
            let freed = timeout(limits::CONNECTION_LOOK_PERIOD, self.free.clone().acquire_owned());
            if let Ok(Ok(permit)) = freed.await {
                return self.taken(Some(permit), end);
            }
        }
    }

    /// A place beyond the others, for what had been accepted by the kernel before a stop.
    pub fn extra_place(self: &Arc<Self>, end: CancellationToken) -> Place {
        self.taken(None, end)
    }

    fn taken(
        self: &Arc<Self>,
        permit: Option<OwnedSemaphorePermit>,
        end: CancellationToken,
    ) -> Place {
        let number = self.next.fetch_add(1, Relaxed);
        let notes = Arc::new(Notes::new(self.shared.clone(), end));
        self.open().insert(number, notes.clone());
        self.metrics.connections.increment(1);
        self.metrics.tally.connections.0.add(1);
        Place { places: self.clone(), number, notes, _permit: permit }
    }

    /// Looks at all connections again and again, and closes those that are overdue.
    pub async fn watch(self: Arc<Self>, stop: CancellationToken) {
        let mut looks = tokio::time::interval(limits::CONNECTION_LOOK_PERIOD);
        while stop.run_until_cancelled(looks.tick()).await.is_some() {
            self.shared.set();
            self.close_overdue();
        }
    }

    fn close_overdue(&self) {
        let mut open = self.open();
        let overdue: Vec<(u64, ConnectionEnd)> = open
            .iter()
            .filter_map(|(number, notes)| Some((*number, notes.overdue(self.keep_alive)?)))
            .collect();
        for (number, reason) in overdue {
            self.close(&mut open, number, reason);
        }
    }

    /// False if none is quiet.
    fn close_quiet(&self) -> bool {
        let mut open = self.open();
        let quiet = open.iter().filter_map(|(number, notes)| Some((notes.may_go()?, *number)));
        let Some((_, number)) = quiet.max() else { return false };
        self.close(&mut open, number, ConnectionEnd::Room);
        true
    }

    /// Takes the connection out of the table at once, and tells its task.
    fn close(&self, open: &mut HashMap<u64, Arc<Notes>>, number: u64, reason: ConnectionEnd) {
        if let Some(notes) = open.remove(&number) {
            self.metrics.count_closed_connection(reason);
            if reason == ConnectionEnd::Unread || notes.has_untaken() {
                notes.at_once.store(true, Relaxed);
            }
            notes.end.cancel();
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<Notes>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Counts the connection as one whose client doesn't read, unless it has been counted.
    pub fn close_unread(&self) {
        self.places.close(&mut self.places.open(), self.number, ConnectionEnd::Unread);
    }

    /// Ends when the client of a service that stops leaves a stream unread, and nothing else is owed to it.
    pub async fn left_unread(&self) {
        loop {
            tokio::time::sleep(limits::STREAM_STOP_MAX).await;
            self.places.shared.set();
            if self.notes.leaves_stream_unread() {
                return;
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.open().remove(&self.number);
        self.places.metrics.connections.decrement(1);
        self.places.metrics.tally.connections.1.add(1);
    }
}

/// What is known of a connection. Moments are those of the coarse clock.
pub struct Notes {
    shared: Arc<Shared>,
    /// Requests whose reply has not begun.
    requests: AtomicU32,
    /// Replies of unknown length that have not ended.
    streams: AtomicU32,
    /// Replies of which the client has not taken all, by the turn in which it last took some, modulo 3.
    replies: [AtomicU32; 3],
    /// Bytes of these replies that have been made for this client and that it has not asked for.
    unread: AtomicUsize,
    /// Moment of the last sign that the connection is of use.
    moved_at: AtomicU64,
    /// Moment since when the kernel takes no bytes for the client; 0 while it does.
    blocked_since: AtomicU64,
    /// Whether there has been a request.
    served: AtomicBool,
    /// Whether the last reply was of unknown length.
    streamed: AtomicBool,
    /// Whether the connection ends without a word, because its client doesn't read.
    pub at_once: AtomicBool,
    /// Cancelled when the connection has to end.
    pub end: CancellationToken,
}

impl Notes {
    fn new(shared: Arc<Shared>, end: CancellationToken) -> Self {
        Self {
            moved_at: shared.now_ms().into(),
            shared,
            requests: AtomicU32::default(),
            streams: AtomicU32::default(),
            replies: Default::default(),
            unread: AtomicUsize::default(),
            blocked_since: AtomicU64::default(),
            served: AtomicBool::default(),
            streamed: AtomicBool::default(),
            at_once: AtomicBool::default(),
            end,
        }
    }

    fn moves(&self) {
        self.moved_at.store(self.shared.now_ms(), Relaxed);
    }

    fn quiet(&self) -> Duration {
        self.shared.since(self.moved_at.load(Relaxed))
    }

    /// Notes whether the kernel takes bytes for the client.
    pub fn blocked(&self, is_blocked: bool) {
        let before = self.blocked_since.load(Relaxed) != 0;
        if before != is_blocked {
            self.blocked_since.store(if is_blocked { self.shared.now_ms() } else { 0 }, Relaxed);
        }
    }

    /// Whether there are replies of which the client has not taken all.
    fn has_untaken(&self) -> bool {
        let blocked = self.blocked_since.load(Relaxed) != 0;
        blocked || self.replies.iter().any(|replies| replies.load(Relaxed) > 0)
    }

    fn leaves_stream_unread(&self) -> bool {
        let goes_on = self.streams.load(Relaxed) > 0;
        let has_ended = self.streamed.load(Relaxed) && self.blocked_since.load(Relaxed) != 0;
        let idle = self.requests.load(Relaxed) == 0;
        idle && (goes_on || has_ended) && self.quiet() >= limits::STREAM_STOP_MAX
    }

    /// Time for which the connection has been of no use to anyone, if it may be closed for a new one: not while a client
    /// may be about to ask.
    fn may_go(&self) -> Option<Duration> {
        let busy = self.requests.load(Relaxed) + self.streams.load(Relaxed) > 0;
        let served = self.served.load(Relaxed);
        let enough = if served { limits::EVICTED_AFTER } else { limits::EVICTED_UNUSED_AFTER };
        Some(self.quiet()).filter(|quiet| !busy && *quiet >= enough)
    }

    /// The reason to close the connection now, if there is one.
    fn overdue(&self, keep_alive: Duration) -> Option<ConnectionEnd> {
        let blocked = self.blocked_since.load(Relaxed);
        let two_turns_ago = (self.shared.turn() + 1) % 3;
        if blocked != 0 && self.shared.since(blocked) >= limits::WRITE_TIMEOUT
            || self.replies[two_turns_ago].load(Relaxed) > 0
        {
            return Some(ConnectionEnd::Unread);
        }
        if self.requests.load(Relaxed) > 0 || self.has_untaken() {
            return None;
        }
        let quiet = self.quiet();
        if !self.served.load(Relaxed) && quiet >= limits::HEADER_READ_TIMEOUT {
            return Some(ConnectionEnd::Head);
        }
        (quiet >= keep_alive).then_some(ConnectionEnd::Idle)
    }
}

/// A request whose reply has not begun.
pub struct UnderWay(Arc<Notes>);

impl UnderWay {
    /// A request has come.
    pub fn begins(notes: &Arc<Notes>) -> Self {
        notes.requests.fetch_add(1, Relaxed);
        notes.served.store(true, Relaxed);
        notes.streamed.store(false, Relaxed);
        notes.moves();
        Self(notes.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.moves();
        self.0.requests.fetch_sub(1, Relaxed);
    }
}

/// A reply of which the client has not taken all.
pub struct Untaken {
    notes: Arc<Notes>,
    turn: usize,
    streams: bool,
    bytes: usize,
}

impl Untaken {
    /// A reply begins, with so many bytes that were made for it alone; `streams` if its length is unknown.
    pub fn begins(notes: &Arc<Notes>, bytes: usize, streams: bool) -> Self {
        let turn = notes.shared.turn() % 3;
        notes.replies[turn].fetch_add(1, Relaxed);
        if streams {
            notes.streams.fetch_add(1, Relaxed);
            notes.streamed.store(true, Relaxed);
        }
        // Short ones, those of claims among them, are not counted: a count of all connections costs each of them.
        let bytes = if bytes > limits::UNREAD_REPLY_BYTES_MIN { bytes } else { 0 };
        if bytes > 0 {
            let own = notes.unread.fetch_add(bytes, Relaxed) + bytes;
            let all = notes.shared.unread.fetch_add(bytes, Relaxed) + bytes;
            if all > limits::UNREAD_BYTES_MAX && own > limits::UNREAD_CONNECTION_BYTES_MAX {
                notes.at_once.store(true, Relaxed);
                notes.end.cancel();
            }
        }
        Self { notes: notes.clone(), turn, streams, bytes }
    }

    /// The connection has handed on all so far, and asks for more.
    pub fn goes_on(&mut self, taken: usize) {
        let turn = self.notes.shared.turn() % 3;
        if turn != self.turn {
            self.notes.replies[turn].fetch_add(1, Relaxed);
            self.notes.replies[self.turn].fetch_sub(1, Relaxed);
            self.turn = turn;
        }
        self.is_taken(taken.min(self.bytes));
        self.notes.moves();
    }

    fn is_taken(&mut self, bytes: usize) {
        if bytes > 0 {
            self.bytes -= bytes;
            self.notes.unread.fetch_sub(bytes, Relaxed);
            self.notes.shared.unread.fetch_sub(bytes, Relaxed);
        }
    }
}

impl Drop for Untaken {
    fn drop(&mut self) {
        self.is_taken(self.bytes);
        let notes = &self.notes;
        notes.streams.fetch_sub(self.streams.into(), Relaxed);
        notes.replies[self.turn].fetch_sub(1, Relaxed);
        notes.moves();
    }
}
