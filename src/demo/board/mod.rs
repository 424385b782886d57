//! The board: everything that an operator watches, once a second, for all processes of the installation.
//!
//! # Model
//!
//! Each process reports its counts to Redis once a second ([`presence`]), whether or not the board is watched, in one
//! round trip. While a client watches, its process has one producer. It reads the counts of all processes, reads both
//! stores, and sends one event a second. The last event is kept in a `watch` channel, so a slow watcher skips to it.
//! The producer ends when its last watcher has gone; a board without watchers reads nothing. A client without a place
//! polls now and then: it gets the producer's last event, and keeps the producer running until its next poll.
//!
//! # What each failure does
//!
//! Redis and Postgres are read concurrently, and events go on without either. If a store doesn't answer, the board says
//! so, and shows its last facts with their time. A process that dies is no longer heard, and stays on the board as
//! silent for a while. A process that ends says so.
//!
//! # What is not promised
//!
//! Counts of different processes are up to a second apart. The board doesn't compare the stores: it shows the result of
//! the last comparison (`recovery/reconcile`), with its time.

// Events for the watchers.
pub mod event;

// Facts from Redis.
mod in_redis;

// Facts from Postgres.
mod in_postgres;

// Sums and rates over all processes.
mod processes;

// Counts of a process, reported to the others.
pub mod presence;

// Capabilities that the board reads.
mod sources;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::coupon::live::places::{Place, Places};
use crate::store::Failure;
use event::{BoardEvent, Seen};
use in_postgres::InPostgres;
use in_redis::RedisChecks;
pub use sources::Sources;

/// Hands out the board. Clones share the producer.
#[derive(Clone)]
pub struct Board(Arc<Shared>);

struct Shared {
    sources: Sources,
    /// The producer, while there is one. When it has no watcher left, it removes itself here, under this lock.
    watched: Mutex<Option<Producer>>,
    /// Places for all watchers of this process.
    places: Places,
    shutdown: Shutdown,
}

struct Producer {
    sent: watch::Sender<Sent>,
    /// When a client without a place asked last.
    asked: Option<Instant>,
}

#[derive(Clone, Default)]
struct Sent {
    board: Option<Arc<BoardEvent>>,
    /// False for the first event, which has counts but can't tell yet how fast they grow.
    has_rates: bool,
}

/// The events of the board, for one watcher.
pub struct Watching {
    sent: watch::Receiver<Sent>,
    _place: Place,
}

impl Board {
    /// `places` bounds the number of watchers.
    pub fn new(sources: Sources, places: Places, shutdown: Shutdown) -> Self {
        Self(Arc::new(Shared { sources, watched: Mutex::default(), places, shutdown }))
    }

    /// Starts watching with the newest event. `None` if all places are taken.
    pub fn watch(&self) -> Option<Watching> {
        let place = self.0.places.take(None)?;
        Some(Watching { sent: self.sent(false), _place: place })
    }

    /// The newest event, at most a second old, for a client without a place. `None` if no event will follow.
    pub async fn now(&self) -> Option<Arc<BoardEvent>> {
        let mut sent = self.sent(true);
        let sent = sent.wait_for(|sent| sent.has_rates).await.ok()?;
        sent.board.clone()
    }

    pub fn is_watched(&self) -> bool {
        self.0.watched.lock().expect("no holder of this lock panics").is_some()
    }

    /// Subscribes to the producer, or to a new one. `asks` is true for a client without a place.
    fn sent(&self, asks: bool) -> watch::Receiver<Sent> {
        let mut watched = self.0.watched.lock().expect("no holder of this lock panics");
        let asked = asks.then(Instant::now);
        if let Some(producer) = &mut *watched {
            producer.asked = asked.or(producer.asked);
            let mut sent = producer.sent.subscribe();
            sent.mark_changed();
            return sent;
        }
        let (sender, sent) = watch::channel(Sent::default());
        *watched = Some(Producer { sent: sender.clone(), asked });
        let (this, stop) = (self.0.clone(), self.0.shutdown.stop_token().clone());
        self.0.shutdown.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => this.forget(),
                () = this.produce(&sender) => {}
            }
        });
        sent
    }
}

impl Shared {
    /// Reads and sends until there is no watcher.
    async fn produce(&self, sender: &watch::Sender<Sent>) {
        let seen = Mutex::default();
        tokio::select! {
            () = self.check_redis(&seen) => {}
            () = self.check_postgres(&seen) => {}
            () = self.send(&seen, sender) => {}
        }
    }

    async fn check_redis(&self, seen: &Mutex<Seen>) {
        // Postgres knows which sales to read.
        begun(seen, limits::BOARD_FIRST_CHECK_MAX / 2, |seen| seen.postgres.is_begun).await;
        let mut ticks = every(limits::BOARD_PERIOD);
        let mut checks = RedisChecks::default();
        loop {
            ticks.tick().await;
            let sales = with(seen, |seen| {
                seen.postgres.facts.as_ref().map(InPostgres::sales_in_redis).unwrap_or_default()
            });
            let checked =
                timeout(limits::BOARD_HEARD_MAX, checks.check(&self.sources, &sales)).await;
            let now = self.now_ms();
            with(seen, |seen| seen.redis.note(checked.unwrap_or(Err(Failure::NoReply)), now));
        }
    }

    async fn check_postgres(&self, seen: &Mutex<Seen>) {
        let mut ticks = every(limits::BOARD_POSTGRES_PERIOD);
        loop {
            ticks.tick().await;
            let checked = InPostgres::check(&self.sources).await;
            let now = self.now_ms();
            with(seen, |seen| seen.postgres.note(checked, now));
        }
    }

    async fn send(&self, seen: &Mutex<Seen>, sender: &watch::Sender<Sent>) {
        // If a store's first read takes too long, the first event says that nothing is known of the store yet.
        let both = |seen: &Seen| seen.redis.is_begun && seen.postgres.is_begun;
        begun(seen, limits::BOARD_FIRST_CHECK_MAX, both).await;
        let mut ticks = every(limits::BOARD_PERIOD);
        let mut has_rates = false;
        while self.is_watched() {
            ticks.tick().await;
            let now = self.now_ms();
            let event = with(seen, |seen| BoardEvent::of(now, seen, &self.sources));
            sender.send_replace(Sent { board: Some(Arc::new(event)), has_rates });
            has_rates = true;
        }
    }

    /// True if a client watches, or has asked lately. Otherwise removes the producer.
    fn is_watched(&self) -> bool {
        let mut watched = self.watched.lock().expect("no holder of this lock panics");
        let is_watched = watched.as_ref().is_some_and(|Producer { sent, asked }| {
            let asks = asked.is_some_and(|at| at.elapsed() < limits::BOARD_ASKED_MAX);
            asks || sent.receiver_count() > 0
        });
        if !is_watched {
            *watched = None;
        }
        is_watched
    }

    fn forget(&self) {
        *self.watched.lock().expect("no holder of this lock panics") = None;
    }

    fn now_ms(&self) -> i64 {
        self.sources.clock.now().timestamp_millis()
    }
}

fn with<T>(seen: &Mutex<Seen>, act: impl FnOnce(&mut Seen) -> T) -> T {
    act(&mut seen.lock().expect("no holder of this lock panics"))
}

/// Waits for a first read, for at most `max`.
async fn begun(seen: &Mutex<Seen>, max: Duration, is_begun: impl Fn(&Seen) -> bool) {
    let waiting = async {
        while !with(seen, |seen| is_begun(seen)) {
            tokio::time::sleep(limits::BOARD_FIRST_CHECK_MAX / 20).await;
        }
    };
    let _ = timeout(max, waiting).await;
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

impl Watching {
    /// Waits for an event that this watcher hasn't seen, and returns the newest. `None` if no event will follow.
    pub async fn next(&mut self) -> Option<Arc<BoardEvent>> {
        loop {
            self.sent.changed().await.ok()?;
            if let Some(board) = &self.sent.borrow_and_update().board {
                return Some(board.clone());
            }
        }
    }
}
