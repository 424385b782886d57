//! The watch over lanes at rest: one look for all of them.
//!
//! # Model
//!
//! A lane whose log has no entry to read rests here, with the id of the last entry that its log has ever had. One
//! task asks for all lanes at once which logs have a newer entry, and wakes up those lanes. So a lane at rest costs
//! no connection and no command of its own. A lane that has just come looks for itself until the task's next look,
//! because the present one may block for a while and doesn't know the lane.
//!
//! # Authority
//!
//! The ids decide: an entry that is appended after a lane was seen to be at rest has a larger id, so the next look
//! finds it, however long the lane took to get here.
//!
//! # What each failure does
//!
//! * A group that vanishes, or entries that a dead process of another machine left behind, are no news of a log.
//!   Every [`limits::LOG_WATCH_PERIOD`] the task looks at all groups, and wakes up each lane whose group has changed.
//! * Redis away: the lanes go on resting. A new life of Redis wakes up all of them, because it may have less than the
//!   one before.
//! * A log whose key holds another type fails the question for all lanes: all are woken up, and each looks for
//!   itself.
//!
//! # What is not promised
//!
//! A lane may be woken up without work: another process may have been faster.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redis::RedisResult;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::base::limits;
use crate::base::telemetry::LogThrottle;
use crate::kit::redis::{Redis, ServerId};
use crate::sale::log::{self, EntryId, GroupState, LogState};

/// Wakes up lanes at rest.
pub struct LaneWatch {
    /// A connection of its own, because the look blocks there.
    redis: Redis,
    /// The connection of lanes that look for themselves.
    shared: Redis,
    /// Lanes at rest, by the key of their log.
    lanes: Mutex<HashMap<String, Resting>>,
    /// Notified when a lane has come to rest.
    came: Notify,
}

/// A lane at rest.
struct Resting {
    /// The last entry that its log had.
    last: EntryId,
    /// Whether there is a group, and everything had been acknowledged; otherwise the lane wakes up by itself to look
    /// after the rest.
    is_settled: bool,
    /// True once a look of the task has begun that knows the lane.
    is_watched: bool,
    wake: Arc<Notify>,
}

/// State that the task keeps from look to look.
struct Watcher {
    looked_at: Instant,
    server: Option<ServerId>,
    throttle: LogThrottle,
}

impl LaneWatch {
    /// A watch over a connection of its own to the server of `redis`.
    pub fn new(redis: &Redis) -> Self {
        let shared = redis.clone();
        Self { redis: redis.another(), shared, lanes: Mutex::default(), came: Notify::new() }
    }

    /// Rests until the log under `key`, last seen in `state`, may have work for its lane. May be dropped.
    pub async fn rest(&self, key: &str, state: &LogState) {
        let wake = Arc::new(Notify::new());
        let last = state.last;
        let is_settled = state.pending == 0 && state.delivered.is_some();
        let lane = Resting { last, is_settled, is_watched: false, wake: wake.clone() };
        self.lanes().insert(key.to_owned(), lane);
        let _up = Up { watch: self, key };
        self.came.notify_one();
        tokio::select! {
            () = wake.notified() => {}
            () = self.look_alone(key, last) => {}
        }
    }

    /// Looks at one log until the task does. Ends only with news.
    async fn look_alone(&self, key: &str, last: EntryId) {
        let log = [(key.to_owned(), last)];
        while !self.lanes().get(key).is_some_and(|lane| lane.is_watched) {
            sleep(limits::WRITE_PAUSE).await;
            let newer = log::newer(&self.shared, &log, Duration::ZERO).await;
            if newer.is_ok_and(|keys| !keys.is_empty()) {
                return;
            }
        }
        std::future::pending().await
    }

    /// Looks after the lanes at rest until the service stops.
    pub async fn run(&self, stop: &CancellationToken) {
        let mut watcher =
            Watcher { looked_at: Instant::now(), server: None, throttle: LogThrottle::default() };
        while !stop.is_cancelled() {
            if self.lanes().is_empty() {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.came.notified() => {}
                }
            }
            if let Err(error) = self.look(&mut watcher).await {
                if watcher.throttle.allows() {
                    tracing::warn!(%error, "the lanes at rest can't be looked at; trying again");
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = sleep(limits::BACKOFF_MIN) => {}
                }
            }
        }
    }

    async fn look(&self, watcher: &mut Watcher) -> RedisResult<()> {
        let server = self.redis.link().await?.server().clone();
        if watcher.server.replace(server.clone()).is_some_and(|before| before != server) {
            self.wake_all();
            return Ok(());
        }
        if watcher.looked_at.elapsed() >= limits::LOG_WATCH_PERIOD {
            watcher.looked_at = Instant::now();
            self.look_at_groups().await?;
        }
        let watched = |(key, lane): (&String, &mut Resting)| {
            lane.is_watched = true;
            (key.clone(), lane.last)
        };
        let resting: Vec<(String, EntryId)> = self.lanes().iter_mut().map(watched).collect();
        // The look ends before the connection times out.
        let block = limits::LOG_WATCH_BLOCK.min(self.redis.timeout() / 2);
        match log::newer(&self.redis, &resting, block).await {
            Ok(keys) => keys.iter().for_each(|key| self.wake(key)),
            Err(error) => {
                if error.code() == Some("WRONGTYPE") {
                    self.wake_all();
                }
                return Err(error);
            }
        }
        Ok(())
    }

    async fn look_at_groups(&self) -> RedisResult<()> {
        let (settled, lasts): (Vec<String>, Vec<EntryId>) = {
            let lanes = self.lanes();
            let settled = lanes.iter().filter(|(_, lane)| lane.is_settled);
            settled.map(|(key, lane)| (key.clone(), lane.last)).unzip()
        };
        let groups = log::groups(&self.redis, &settled).await?;
        for ((key, last), group) in settled.iter().zip(lasts).zip(groups) {
            let is_at_rest = |group: GroupState| group.pending == 0 && group.delivered >= last;
            if !group.is_some_and(is_at_rest) {
                self.wake(key);
            }
        }
        Ok(())
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<String, Resting>> {
        self.lanes.lock().expect("no holder of this lock panics")
    }

    fn wake(&self, key: &str) {
        if let Some(lane) = self.lanes().get(key) {
            lane.wake.notify_one();
        }
    }

    fn wake_all(&self) {
        self.lanes().values().for_each(|lane| lane.wake.notify_one());
    }
}

/// Takes a lane off the list when it gets up, by whichever way.
struct Up<'a> {
    watch: &'a LaneWatch,
    key: &'a str,
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        self.watch.lanes().remove(self.key);
    }
}
