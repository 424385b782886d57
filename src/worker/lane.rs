//! The task of a lane that this process owns.
//!
//! # Model
//!
//! The task runs write jobs. While batches are full, it runs [`limits::BATCHES_AT_A_TIME`] of them side by side: one
//! reads and locks while the others wait for Postgres. After a batch that isn't full, it runs one at a time, and pauses
//! before the next, so that the claims of that pause are written together. If the log has no new entry, the read waits
//! in Redis for one.
//!
//! All owners that a lane ever has read by one name, [`CONSUMER`](crate::log::CONSUMER). So a new owner finds under
//! that name what earlier owners have read and not acknowledged, and starts with it. An owner that finds more entries
//! there than it has read starts over in the same way: another process believed it was the owner, or a reply of Redis
//! was lost.
//!
//! # What each failure does
//!
//! A failed run has acknowledged nothing that it didn't write. The task logs the failure, lets the other batches
//! finish, waits, and starts over with the pending entries.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::failure::JobError;
use super::open_entries::OpenEntries;
use super::state::State;
use crate::app::App;
use crate::base::limits;
use crate::base::telemetry::LogThrottle;
use crate::log::{EntryId, OrderLog};
use crate::store::ids::Lane;
use crate::store::job::Job;

/// Writes the log of one lane.
pub struct LaneWorker {
    pub(super) app: Arc<App>,
    pub(super) log: OrderLog,
    pub(super) batch_orders_max: usize,
    state: Mutex<State>,
}

/// How many claims a run has found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Read {
    Nothing,
    /// Fewer than a batch may have.
    Some,
    /// As many as a batch may have, so there may be more.
    Full,
}

impl LaneWorker {
    /// A worker that runs only when its caller runs its jobs.
    pub fn new(app: Arc<App>, lane: Lane, batch_orders_max: usize) -> Self {
        let log = OrderLog::new(app.stores.redis(lane).clone(), &app.stores.keys, lane);
        let state = Mutex::new(State::new(batch_orders_max));
        Self { app, log, batch_orders_max, state }
    }

    pub fn log(&self) -> &OrderLog {
        &self.log
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Writes the log until `let_go` is cancelled. If the service is stopping, writes the rest of the log first.
    pub(super) async fn run(mut self, let_go: &CancellationToken) {
        let mut backoff = limits::BACKOFF_MIN;
        let mut throttle = LogThrottle::default();
        while !let_go.is_cancelled() {
            let Err(error) = self.work(let_go).await else {
                backoff = limits::BACKOFF_MIN;
                continue;
            };
            if throttle.allows() {
                tracing::warn!(lane = %self.log.lane(), %error, "a job over the order log failed; trying again");
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

    /// Prepares the log, then runs write jobs for [`limits::TRIM_PERIOD`]. When this returns, no run is under way.
    async fn work(&self, let_go: &CancellationToken) -> Result<(), JobError> {
        let epoch = self.learn_epoch();
        self.see_to_log().await.inspect_err(|_| self.app.count_failure(Job::TidyUp))?;
        let ends_at = Instant::now() + limits::TRIM_PERIOD;
        let goes_on = || {
            let is_known = epoch == self.app.lanes.epoch(self.log.lane());
            is_known && !let_go.is_cancelled() && Instant::now() < ends_at
        };
        let mut failed = None;
        let mut jobs = FuturesUnordered::from_iter([self.run_once(limits::LOG_WAIT)]);
        while let Some(passed) = jobs.next().await {
            match passed {
                Err(error) => failed = failed.or(Some(error)),
                _ if failed.is_some() || !goes_on() => {}
                Ok(Read::Full) => {
                    while jobs.len() < limits::BATCHES_AT_A_TIME {
                        jobs.push(self.run_once(Duration::ZERO));
                    }
                }
                Ok(read) if jobs.is_empty() => {
                    if read == Read::Some {
                        // Each batch makes Redis and Postgres sync their disks.
                        sleep(limits::WRITE_PAUSE).await;
                    }
                    jobs.push(self.run_once(limits::LOG_WAIT));
                }
                Ok(_) => {}
            }
        }
        failed.map_or(Ok(()), Err).inspect_err(|_| self.app.count_failure(Job::Write))
    }

    /// One of several write jobs. Waits up to `patience` for an entry.
    async fn run_once(&self, patience: Duration) -> Result<Read, JobError> {
        let (batch, is_full) = self.next_batch(patience).await?;
        if batch.len() == 0 {
            return Ok(Read::Nothing);
        }
        self.write(batch).await?;
        Ok(if is_full { Read::Full } else { Read::Some })
    }

    /// Creates the group if it is missing, takes over entries of other consumers, looks for pending entries that aren't
    /// known here, and trims the log.
    async fn see_to_log(&self) -> Result<(), JobError> {
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
            self.tidy_up_job().await?;
        }
        Ok(())
    }

    /// Creates the group at the log's start if it is missing.
    ///
    /// # Errors
    ///
    /// [`JobError::LogLost`] until a recovery has started a lost log over.
    pub async fn ensure_group(&self) -> Result<(), JobError> {
        if self.log.ensure_group().await? {
            return Ok(());
        }
        self.app.lanes.suspect(self.log.lane());
        Err(JobError::LogLost)
    }

    /// Trims the log behind the entries that every group has finished with. Returns the number of entries removed.
    pub async fn tidy_up_job(&self) -> Result<u64, JobError> {
        self.state().untidied = false;
        let mut trimmed = 0;
        // A call removes some 10,000 entries at most; more may be written between two runs.
        loop {
            let tidied_up = self.log.trim().await?;
            self.alarm_unaccounted(tidied_up.unaccounted);
            match tidied_up.trimmed {
                0 => return Ok(trimmed),
                entries => trimmed += entries,
            }
        }
    }

    /// Raises the alarm about orders that the lane has accepted and that are neither written nor in the log. A negative
    /// number is no loss: somebody had entries delivered again by hand.
    fn alarm_unaccounted(&self, orders: i64) {
        let Ok(orders @ 1..) = u64::try_from(orders) else { return };
        let lane = self.log.lane();
        self.app.metrics.data_lost.increment(orders);
        tracing::error!(%lane, orders, "ALARM: no entry is left in the order log, but not all orders that the lane has accepted were written; run `flash-sale reconcile`");
    }

    /// Writes the rest of the log, for a limited time. The next owner reads what is left.
    async fn drain(&mut self) {
        let deadline = Instant::now() + limits::DOOR_DRAIN_MAX;
        while Instant::now() < deadline {
            match self.write_job().await {
                Ok(written) if written.positions == 0 => break,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(lane = %self.log.lane(), %error, "the order log can't be drained; the rest stays in it for the next owner");
                    break;
                }
            }
        }
    }

    /// Starts over with the pending entries after a failure: Redis may have delivered entries in a reply that was lost.
    /// After an error of Redis, all open entries are forgotten, since Redis may come back with other entries under the
    /// same ids.
    pub(super) fn begin_anew(&self, error: &JobError) {
        if let JobError::Redis(_) | JobError::Stale = error {
            self.state().open = OpenEntries::default();
        }
        self.read_pending_again();
    }

    pub(super) fn read_pending_again(&self) {
        self.state().pending_from = Some(EntryId::default());
    }
}
