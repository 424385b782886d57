//! The task of a lane that this process owns.
//!
//! # Model
//!
//! The task runs write passes. While batches are full it runs [`limits::BATCHES_AT_A_TIME`] side by side: one reads and
//! locks while others wait for Postgres. A batch that is not full ends that. After it the task pauses, so
//! that claims that arrive meanwhile are written together. Where there is no entry, Redis answers once there is one.
//!
//! All owners that a lane ever has read by one name, [`CONSUMER`](crate::log::CONSUMER). So a new owner finds
//! under that name what its predecessors have read and not acknowledged, and begins with it. An owner that finds more
//! entries there than it knows begins again in the same way: another process has taken itself for the owner, or a reply
//! of Redis has got lost.
//!
//! # What each failure does
//!
//! A failed pass has acknowledged nothing that it didn't write; the task logs it, lets the other batches end, waits, and
//! begins again with the pending entries.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::failure::PassError;
use super::open_entries::OpenEntries;
use super::state::State;
use crate::app::App;
use crate::base::limits;
use crate::base::telemetry::LogThrottle;
use crate::log::{EntryId, OrderLog};
use crate::store::ids::Lane;
use crate::store::pass::Pass;

/// Writes the log of one lane.
pub struct LaneWorker {
    pub(super) app: Arc<App>,
    pub(super) log: OrderLog,
    pub(super) batch_orders_max: usize,
    state: Mutex<State>,
}

/// Claims that a pass has found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Read {
    Nothing,
    /// Fewer than a batch may have.
    Some,
    /// As many as a batch may have: there are more.
    Full,
}

impl LaneWorker {
    /// A worker that runs only when a caller runs its passes.
    pub fn new(app: Arc<App>, lane: Lane, batch_orders_max: usize) -> Self {
        let log = OrderLog::new(app.stores.redis(lane).clone(), &app.stores.keys, lane);
        let state = Mutex::new(State::new(batch_orders_max));
        Self { app, log, batch_orders_max, state }
    }

    /// The order log of this lane.
    pub fn log(&self) -> &OrderLog {
        &self.log
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Writes what the log has until it is told to let the lane go. If that is because the service stops, it first writes
    /// the rest.
    pub(super) async fn run(mut self, let_go: &CancellationToken) {
        let mut backoff = limits::BACKOFF_MIN;
        let mut throttle = LogThrottle::default();
        while !let_go.is_cancelled() {
            let Err(error) = self.work(let_go).await else {
                backoff = limits::BACKOFF_MIN;
                continue;
            };
            if throttle.allows() {
                tracing::warn!(lane = %self.log.lane(), %error, "a pass over the order log failed; trying again");
            }
            self.begin_anew(&error);
            tokio::select! {
                () = let_go.cancelled() => {}
                () = sleep(backoff) => {}
            }
            backoff = (backoff * 2).min(limits::BACKOFF_MAX);
        }
        if self.app.shutdown.stop_token().is_cancelled() {
            self.drain().await;
        }
    }

    /// Sees to the log, then runs write passes for a moment. All that have begun have ended when this returns.
    async fn work(&self, let_go: &CancellationToken) -> Result<(), PassError> {
        let epoch = self.learn_epoch();
        self.see_to_log().await.inspect_err(|_| self.app.count_failure(Pass::TidyUp))?;
        let ends_at = Instant::now() + limits::TRIM_PERIOD;
        let goes_on = || {
            let is_known = epoch == self.app.lanes.epoch(self.log.lane());
            is_known && !let_go.is_cancelled() && Instant::now() < ends_at
        };
        let mut failed = None;
        let mut passes = FuturesUnordered::from_iter([self.pass(limits::LOG_WAIT)]);
        while let Some(passed) = passes.next().await {
            match passed {
                Err(error) => failed = failed.or(Some(error)),
                _ if failed.is_some() || !goes_on() => {}
                Ok(Read::Full) => {
                    while passes.len() < limits::BATCHES_AT_A_TIME {
                        passes.push(self.pass(Duration::ZERO));
                    }
                }
                Ok(read) if passes.is_empty() => {
                    if read == Read::Some {
                        // For each batch Redis and Postgres wait for the disk.
                        sleep(limits::WRITE_PAUSE).await;
                    }
                    passes.push(self.pass(limits::LOG_WAIT));
                }
                Ok(_) => {}
            }
        }
        failed.map_or(Ok(()), Err).inspect_err(|_| self.app.count_failure(Pass::Write))
    }

    /// One of several write passes. Waits so long for an entry.
    async fn pass(&self, patience: Duration) -> Result<Read, PassError> {
        let (batch, is_full) = self.next_batch(patience).await?;
        if batch.len() == 0 {
            return Ok(Read::Nothing);
        }
        self.write(batch).await?;
        Ok(if is_full { Read::Full } else { Read::Some })
    }

    /// Creates the group if it isn't there, looks for pending entries that aren't known here, and trims the log.
    async fn see_to_log(&self) -> Result<(), PassError> {
        self.ensure_group().await?;
        let pending = self.log.pending().await?;
        if pending.of_others {
            let lost = self.log.take_over().await?;
            self.state().open.add(lost);
        }
        if pending.entries > self.state().open.len() {
            self.read_pending_again();
        }
        if self.state().untidied {
            self.tidy_up_pass().await?;
        }
        Ok(())
    }

    /// Creates the group from the log's start if it isn't there.
    ///
    /// # Errors
    ///
    /// [`PassError::LogLost`] until a recovery has begun a lost log anew.
    pub async fn ensure_group(&self) -> Result<(), PassError> {
        if self.log.ensure_group().await? {
            return Ok(());
        }
        self.app.lanes.suspect(self.log.lane());
        Err(PassError::LogLost)
    }

    /// Trims the log behind the entries that every group has finished with. Returns the number of entries trimmed.
    pub async fn tidy_up_pass(&self) -> Result<u64, PassError> {
        self.state().untidied = false;
        let mut trimmed = 0;
        // A call removes some 10,000 entries at most; more may be written between two passes.
        loop {
            let tidied_up = self.log.trim().await?;
            self.alarm_unaccounted(tidied_up.unaccounted);
            match tidied_up.trimmed {
                0 => return Ok(trimmed),
                entries => trimmed += entries,
            }
        }
    }

    /// Raises the alarm about orders that the lane has promised, and that neither are written nor stand in the log. A
    /// negative number is no loss: entries were delivered anew, by hand.
    fn alarm_unaccounted(&self, orders: i64) {
        let Ok(orders @ 1..) = u64::try_from(orders) else { return };
        let lane = self.log.lane();
        self.app.metrics.data_lost.increment(orders);
        tracing::error!(%lane, orders, "ALARM: no entry is left in the order log, but not all orders that the lane has promised were written; run `flash-sale reconcile`");
    }

    /// Writes the entries that are in the log now, for a bounded time. The next owner reads the rest.
    async fn drain(&mut self) {
        let deadline = Instant::now() + limits::DOOR_DRAIN_MAX;
        while Instant::now() < deadline {
            match self.write_pass().await {
                Ok(written) if written.positions == 0 => break,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(lane = %self.log.lane(), %error, "the order log can't be drained; the rest stays in it for the next owner");
                    break;
                }
            }
        }
    }

    /// Has the pending entries read again after a failure: Redis may have delivered entries in a reply that never
    /// arrived. A Redis that failed may come back with other entries under the same ids, so nothing is remembered of
    /// them then.
    pub(super) fn begin_anew(&self, error: &PassError) {
        if let PassError::Redis(_) | PassError::Stale = error {
            self.state().open = OpenEntries::default();
        }
        self.read_pending_again();
    }

    pub(super) fn read_pending_again(&self) {
        self.state().pending_from = Some(EntryId::default());
    }
}
