//! The workers of one lane: the writer that runs the passes, and its reliefs.
//!
//! # Model
//!
//! The writer reads entries and writes them. After a batch that was not full it pauses, so that entries that arrive
//! meanwhile are written together. After [`limits::LANE_LINGER`] without an entry, the lane rests in the
//! [watch](super::watch) of the process until its log has a newer entry. While other consumers hold entries, the lane
//! gets up every `--recover-period-ms` to see whether these still move.
//!
//! A relief is another consumer of the same process. A full batch calls it, and its first batch that is not full ends
//! its work.
//!
//! # What each failure does
//!
//! A failed pass has acknowledged nothing that it didn't write; the writer logs it, waits, and begins again with its
//! own pending entries. After a failure the writer looks at the group as at the start: the group may have vanished,
//! or belong to another life of Redis.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

use super::failure::PassError;
use super::open_entries::OpenEntries;
use super::settings::WorkerSettings;
use super::watch::LaneWatch;
use crate::app::App;
use crate::base::limits;
use crate::base::telemetry::LogThrottle;
use crate::kit::postgres;
use crate::kit::redis::Redis;
use crate::sale::coupon::stock;
use crate::sale::ids::{CouponId, Lane, OrderId};
use crate::sale::log::{EntryId, Held, LogState, OrderLog, is_missing_group};
use crate::sale::pass::Pass;

/// State that the workers of all lanes share.
pub struct Lanes {
    pub(super) app: Arc<App>,
    settings: WorkerSettings,
    /// Connections over which entries are read.
    readers: Vec<Redis>,
    watch: LaneWatch,
    /// One line about trouble for all lanes together.
    throttle: Mutex<LogThrottle>,
    /// Time at which the stores were last compared because of a new group.
    compared_at: tokio::sync::Mutex<Option<Instant>>,
}

/// A worker of one lane.
pub struct LaneWorker {
    pub(super) app: Arc<App>,
    lanes: Arc<Lanes>,
    pub(super) log: OrderLog,
    pub(super) settings: WorkerSettings,
    /// Epoch of the lane in which the open entries were read.
    pub(super) epoch: i64,
    /// Entries that have been read, and aren't finished.
    pub(super) open: OpenEntries,
    /// Claims of batches that failed: Postgres may have committed without being heard.
    pub(super) tried: HashSet<OrderId>,
    /// Entry behind which the next read of the own pending entries begins; `None` when there can't be any but the open
    /// ones.
    pub(super) pending_from: Option<EntryId>,
    /// Time at which entries were last read.
    pub(super) read_at: Instant,
    /// Time before which contended claims are not tried: a lock that was just held is still held.
    pub(super) contended_not_before: Instant,
    /// Size of the next batch, in claims: halved when Postgres fails (a batch may be more than Postgres can write
    /// within its time limit), doubled up to the setting when Postgres succeeds.
    pub(super) batch_orders: usize,
    /// Set when Postgres has failed. Until Postgres answers again, no entry is read: the held entries grow old, and a
    /// worker that can reach Postgres takes them over. Reading them again would keep them young.
    pub(super) postgres_away: bool,
    /// Entries of the other consumers, each set with the time since which it has been the same.
    pub(super) held_by_others: Vec<(Held, Instant)>,
    /// Entries that the log has lost, and that are no dead letters yet.
    pub(super) lost: Vec<EntryId>,
    /// Sales that had more entries than units a moment ago: their next entries are written by themselves.
    pub(super) overflowing: BTreeSet<CouponId>,
    /// Sales whose rows another session keeps locked in Postgres, at the last look: their claims wait.
    pub(super) locked: BTreeSet<CouponId>,
    /// Set once the group has been seen; a later absence is a loss.
    group_seen: bool,
    /// Whether the group was in order at the last look, with no failure since.
    group_checked: bool,
    /// Whether Redis has been asked for entries, and so knows the consumer.
    pub(super) has_read: bool,
    /// Time at which entries last arrived.
    busy_at: Instant,
    /// Whether entries have been written since the log was trimmed.
    untidied: bool,
    /// Calls a relief when a batch was full.
    behind: Arc<Notify>,
}

/// Amount of work that a write pass has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Batch {
    /// No entry.
    Empty,
    /// Fewer entries than a batch may have.
    Partial,
    /// As many entries as a batch may have: there are more.
    Full,
}

/// Times at which the timed passes are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Time of the next recover pass.
    pub recover_at: Instant,
    /// Time of the next tidy-up pass.
    pub tidy_up_at: Instant,
}

impl Lanes {
    pub(super) fn new(app: Arc<App>, settings: WorkerSettings) -> Self {
        let redis = &app.stores.redis;
        let readers = (0..limits::LOG_READERS).map(|_| redis.another()).collect();
        let watch = LaneWatch::new(redis);
        Self {
            app,
            settings,
            readers,
            watch,
            throttle: Mutex::default(),
            compared_at: tokio::sync::Mutex::default(),
        }
    }

    /// Starts the writer of a lane and its reliefs, as tasks of the service.
    pub(super) fn start(self: &Arc<Self>, lane: Lane) {
        let shutdown = &self.app.shutdown;
        let writer = LaneWorker::of(self.clone(), lane, consumer_name(), self.settings);
        for _ in 1..limits::WRITERS_MAX {
            shutdown.spawn(writer.relief().run_relief());
        }
        shutdown.spawn(writer.run());
    }

    /// Looks after the lanes at rest until the service stops.
    pub(super) async fn watch(&self) {
        self.watch.run(self.app.shutdown.stop_token()).await;
    }

    /// True if this process may log a line about its lanes now.
    fn may_log(&self) -> bool {
        self.throttle.lock().is_ok_and(|mut throttle| throttle.allows())
    }

    fn reader(&self, lane: Lane) -> Redis {
        let number = usize::try_from(lane.get()).unwrap_or_default();
        self.readers[number % self.readers.len()].clone()
    }
}

/// A name for a consumer, unique: two writers with one name would take each other's pending entries for their own.
pub fn consumer_name() -> String {
    format!("{}-{}", std::process::id(), Uuid::new_v4().simple())
}

impl LaneWorker {
    /// A worker that reads as `consumer`, and runs only when a caller runs its passes.
    pub fn new(app: Arc<App>, lane: Lane, consumer: String, settings: WorkerSettings) -> Self {
        Self::of(Arc::new(Lanes::new(app, settings)), lane, consumer, settings)
    }

    fn of(lanes: Arc<Lanes>, lane: Lane, consumer: String, settings: WorkerSettings) -> Self {
        let app = lanes.app.clone();
        let redis = app.stores.redis.clone();
        let keys = &app.stores.keys;
        let reader = lanes.reader(lane);
        let log = OrderLog::new(redis, keys, lane, consumer).read_over(reader);
        Self {
            app,
            lanes,
            log,
            settings,
            epoch: 0,
            open: OpenEntries::default(),
            tried: HashSet::new(),
            pending_from: Some(EntryId::default()),
            read_at: Instant::now(),
            contended_not_before: Instant::now(),
            batch_orders: settings.batch_orders_max,
            postgres_away: false,
            held_by_others: Vec::new(),
            lost: Vec::new(),
            overflowing: BTreeSet::new(),
            locked: BTreeSet::new(),
            group_seen: false,
            group_checked: false,
            has_read: false,
            busy_at: Instant::now(),
            untidied: true,
            behind: Arc::default(),
        }
    }

    /// The order log of this lane, as this consumer reads it.
    pub fn log(&self) -> &OrderLog {
        &self.log
    }

    /// Another consumer that works when this one can't keep up. Its name is new, so no entry can be pending for it.
    #[must_use]
    pub fn relief(&self) -> Self {
        let lanes = self.lanes.clone();
        let relief = Self::of(lanes, self.log.lane(), consumer_name(), self.settings);
        Self { pending_from: None, behind: self.behind.clone(), ..relief }
    }

    /// Runs the passes until the service stops, then writes the rest of the log and leaves the group.
    async fn run(mut self) {
        let stop = self.app.shutdown.stop_token().clone();
        let mut backoff = limits::BACKOFF_MIN;
        let mut due = Due { recover_at: Instant::now(), tidy_up_at: Instant::now() };
        while !stop.is_cancelled() {
            let turn = self.turn(&mut due).await;
            self.heal_if_failed(turn, &mut backoff).await;
        }
        self.drain().await;
    }

    /// Runs a write pass at each call, until the service stops.
    pub async fn run_relief(mut self) {
        let stop = self.app.shutdown.stop_token().clone();
        let mut backoff = limits::BACKOFF_MIN;
        while !stop.is_cancelled() {
            let turn = self.relief_turn().await;
            self.heal_if_failed(turn, &mut backoff).await;
        }
        self.drain().await;
    }

    /// Logs a turn that failed, and waits for `backoff`, which doubles with each failure in a row.
    pub async fn heal_if_failed(&mut self, turn: Result<(), PassError>, backoff: &mut Duration) {
        let Err(error) = turn else {
            *backoff = limits::BACKOFF_MIN;
            return;
        };
        self.heal(error).await;
        self.pause(*backoff).await;
        *backoff = (*backoff * 2).min(limits::BACKOFF_MAX);
    }

    /// Runs the timed passes that are due, then one write pass; rests if there was no entry.
    ///
    /// # Errors
    ///
    /// When a pass fails; a later turn repeats it.
    pub async fn turn(&mut self, due: &mut Due) -> Result<(), PassError> {
        if !self.group_checked {
            let group = self.ensure_group().await;
            group.inspect_err(|_| self.app.count_failure(Pass::Write))?;
        }
        if Instant::now() >= due.recover_at {
            let recovered = self.recover_pass().await;
            recovered.inspect_err(|_| self.app.count_failure(Pass::Recover))?;
            due.recover_at = Instant::now() + self.settings.recover_period;
        }
        if Instant::now() >= due.tidy_up_at {
            let tidied_up = self.tidy_up_pass().await;
            tidied_up.inspect_err(|_| self.app.count_failure(Pass::TidyUp))?;
            self.untidied = false;
            due.tidy_up_at = Instant::now() + limits::TRIM_PERIOD;
        }
        match self.write_batch().await? {
            Batch::Full => {}
            // Entries that arrive meanwhile are written together: each batch has Redis and Postgres wait for the
            // disk.
            Batch::Partial => self.pause(limits::WRITE_PAUSE).await,
            // More of a burst may be on its way.
            Batch::Empty if self.busy_at.elapsed() < limits::LANE_LINGER => {
                self.pause(limits::WRITE_PAUSE).await;
            }
            Batch::Empty => self.rest(due).await?,
        }
        Ok(())
    }

    /// Waits until the log has a newer entry than now, or a timed pass is due.
    async fn rest(&mut self, due: &mut Due) -> Result<(), PassError> {
        let state = self.log.state().await?;
        // In this order, an entry that is appended in between is read here, and a later one is newer than `state`.
        if state.delivered.is_none() || self.write_batch().await? != Batch::Empty {
            return Ok(());
        }
        let gets_up_at = self.gets_up_at(&state, due);
        let stop = self.app.shutdown.stop_token();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.lanes.watch.rest(self.log.key(), &state) => {}
            () = sleep_until(gets_up_at.unwrap_or_else(Instant::now)), if gets_up_at.is_some() => {}
        }
        if gets_up_at.is_none() {
            // No entry can have grown old during the rest.
            due.recover_at = Instant::now() + self.settings.recover_period;
            due.tidy_up_at = Instant::now() + limits::TRIM_PERIOD;
        }
        Ok(())
    }

    /// Time at which a lane has to get up by itself; `None` if only a new entry can make work for it.
    fn gets_up_at(&self, state: &LogState, due: &Due) -> Option<Instant> {
        let contended = self.open.has_contended().then_some(self.contended_not_before);
        let pending = (state.pending > 0).then_some(due.recover_at);
        let untidied = self.untidied.then_some(due.tidy_up_at);
        [contended, pending, untidied].into_iter().flatten().min()
    }

    /// Waits for a call, unless pending entries are left; then one write pass.
    ///
    /// # Errors
    ///
    /// When the pass fails; a later turn repeats it.
    pub async fn relief_turn(&mut self) -> Result<(), PassError> {
        let stop = self.app.shutdown.stop_token();
        if !self.holds_entries() {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = self.behind.notified() => {}
            }
        } else if self.open.has_contended() && self.open.waiting() == 0 {
            // The writer may call for the others meanwhile.
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.behind.notified() => {}
                () = sleep_until(self.contended_not_before) => {}
            }
        }
        self.write_batch().await?;
        Ok(())
    }

    /// A write pass that calls the relief when there are more entries.
    async fn write_batch(&mut self) -> Result<Batch, PassError> {
        let batch = self.batch_orders;
        let written = self.write_pass().await;
        let positions = written.inspect_err(|_| self.app.count_failure(Pass::Write))?.positions;
        if positions == 0 {
            return Ok(Batch::Empty);
        }
        (self.busy_at, self.untidied) = (Instant::now(), true);
        if positions < batch {
            return Ok(Batch::Partial);
        }
        self.behind.notify_one();
        Ok(Batch::Full)
    }

    async fn pause(&self, pause: Duration) {
        tokio::select! {
            () = self.app.shutdown.stop_token().cancelled() => {}
            () = sleep(pause) => {}
        }
    }

    /// Logs a failure of a pass, and creates a vanished group anew.
    pub async fn heal(&mut self, error: PassError) {
        // Redis may have delivered entries in a reply that never arrived.
        self.read_pending_again();
        self.group_checked = false;
        let lane = self.log.lane();
        if self.lanes.may_log() {
            tracing::warn!(%lane, %error, "a pass over the order log failed; trying again");
        }
        if let PassError::Redis(error) = &error
            && is_missing_group(error)
            && let Err(error) = self.ensure_group().await
        {
            tracing::debug!(%lane, %error, "the group could not be created yet");
        }
    }

    /// Creates the group from the log's start if it isn't there. If the group had been there before, or the log
    /// itself is missing, the stores are compared: orders may be gone with it.
    ///
    /// # Errors
    ///
    /// [`PassError::LogLost`] until a recovery has begun the log anew.
    pub async fn ensure_group(&mut self) -> Result<(), PassError> {
        let Some(created) = self.log.ensure_group().await? else {
            self.app.lanes.suspect(self.log.lane());
            return Err(PassError::LogLost);
        };
        if created.group && (self.group_seen || created.log) {
            self.compare_stores(created.log);
        }
        (self.group_seen, self.group_checked) = (true, true);
        self.read_pending_again();
        Ok(())
    }

    /// Compares the stores beside the work, which goes on meanwhile. A missing log proves little by itself: before
    /// the first claim there is none.
    fn compare_stores(&self, log_was_missing: bool) {
        let lane = self.log.lane();
        let vanished = self.group_seen;
        if vanished && self.lanes.may_log() {
            tracing::warn!(%lane, log_was_missing, "the group of the order log had vanished; it begins again at the log's start");
        }
        let (lanes, found_at) = (self.lanes.clone(), Instant::now());
        let stop = self.app.shutdown.stop_token().clone();
        self.app.shutdown.spawn(async move {
            let log_lost = vanished && log_was_missing;
            tokio::select! {
                () = stop.cancelled() => {}
                () = alarm_if_data_lost(&lanes, lane, found_at, log_lost) => {}
            }
        });
    }

    /// Writes the entries that are in the log now, for a bounded time. The next worker reads the rest.
    pub async fn drain(&mut self) {
        if !self.has_read {
            return;
        }
        let deadline = Instant::now() + limits::DOOR_DRAIN_MAX;
        self.read_pending_again();
        while Instant::now() < deadline {
            match self.write_pass().await {
                Ok(written) if written.positions == 0 => break,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(lane = %self.log.lane(), %error, "the order log can't be drained; the rest stays in it for the next start");
                    break;
                }
            }
        }
        if let Err(error) = self.log.leave().await {
            tracing::debug!(lane = %self.log.lane(), %error, "the consumer could not be removed");
        }
    }

    /// Fails while Postgres is known to be away.
    pub(super) async fn require_postgres(&mut self) -> Result<(), PassError> {
        if self.postgres_away && !postgres::answers(&self.app.stores.pool).await {
            return Err(PassError::PostgresAway);
        }
        self.postgres_away = false;
        Ok(())
    }

    /// Whether entries may be pending for this consumer.
    pub(super) fn holds_entries(&self) -> bool {
        self.pending_from.is_some() || !self.open.is_empty()
    }

    pub(super) fn read_pending_again(&mut self) {
        self.pending_from = Some(EntryId::default());
    }
}

/// Raises the alarm if a log was lost for certain, or the stores don't agree. A comparison is about all lanes: one that
/// has begun since another lane's group was found to be new serves that lane, too.
async fn alarm_if_data_lost(lanes: &Lanes, lane: Lane, found_at: Instant, log_lost: bool) {
    let app = &lanes.app;
    if !log_lost && !has_sale(&app.stores.pool, lane).await {
        return;
    }
    let mut compared_at = lanes.compared_at.lock().await;
    if !log_lost && compared_at.is_some_and(|began| began >= found_at) {
        return;
    }
    *compared_at = Some(Instant::now());
    match app.reconciler.compare().await {
        Ok(Some(report)) if report.agrees() && !log_lost => {}
        Ok(None) => {
            app.metrics.data_lost.increment(1);
            tracing::error!(%lane, log_lost, "ALARM: the group of the order log had vanished, and orders may be gone with it; a comparison goes on, and its record will tell");
        }
        Ok(Some(report)) => {
            app.metrics.data_lost.increment(1);
            tracing::error!(%lane, log_lost, disagreements = report.disagreements.len(), "ALARM: the group of the order log had vanished, and orders may be gone with it; run `flash-sale reconcile`");
            for disagreement in report.disagreements.iter().take(limits::LOGGED_DISAGREEMENTS_MAX) {
                tracing::error!(%lane, "{disagreement}");
            }
        }
        Err(error) => {
            app.metrics.data_lost.increment(1);
            tracing::error!(%lane, %error, "ALARM: the group of the order log had vanished, and the stores can't be compared; run `flash-sale reconcile`");
        }
    }
}

/// True if a sale of this lane is loaded. Waits until Postgres tells.
async fn has_sale(pool: &PgPool, lane: Lane) -> bool {
    loop {
        match stock::loaded(pool).await {
            Ok(sales) => return sales.iter().any(|coupon| coupon.lane() == lane),
            Err(error) => tracing::debug!(%lane, %error, "the sales can't be read yet"),
        }
        sleep(limits::BACKOFF_MAX).await;
    }
}
