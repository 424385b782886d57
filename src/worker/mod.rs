//! The door for the order log: accepted claims leave Redis and become orders in Postgres.
//!
//! A process has some tasks for each lane. The first one runs passes, one at a time. A pass is a function that reads,
//! decides, writes and reports; a timer, the tests and the drain call the same function. The others, its reliefs, run
//! write passes while those before them can't keep up: one of them reads and locks while another waits for Postgres. To
//! the log they are consumers, like those of other processes.
//!
//! | pass | when | what |
//! |---|---|---|
//! | [write](crate::worker::write) | always, waits for entries | entries -> buyers' locks -> rows -> acknowledged |
//! | [recover](crate::worker::recover) | at start, then every `--recover-period-ms` | takes over what dead workers left |
//! | [tidy up](crate::worker::recover) | once a second | trims the log, removes consumers that are long gone |
//!
//! What concerns no lane has a task of its own for each pass ([passes](crate::worker::passes)):
//!
//! | pass | when | what |
//! |---|---|---|
//! | [warm-up](crate::sale::warm_up) | every 10 s | loads sales that open soon |
//! | [archive](crate::sale::archive) | once a minute | relieves Redis of sales that are over |
//! | [changes](crate::sale::coupon_changes) | once a second | applies what was decided about coupons and has not reached Redis |
//! | [numbers](crate::sale::numbers) | every 5 s | looks up what the metrics tell of both stores |
//! | [reconcile](crate::sale::reconcile_pass) | every `--reconcile-period-ms`, all processes together | compares Redis with Postgres; repairs nothing |
//! | [stock returns](crate::sale::stock_return) | twice a second | gives units of closed orders back to Redis |
//! | [expiry](crate::sale::expiry) | once a second | closes orders that have not been paid in time |
//! | [refunds](crate::sale::payment) | once a second | asks gateways to give back what has to go back |
//!
//! **Nothing is ever acknowledged that is not in Postgres or in the dead letters.** A failed pass has
//! acknowledged nothing that it didn't write; it is logged once, waits, and begins again with its own
//! pending entries. So an outage of Postgres costs time and never an order.

pub mod passes;
pub mod recover;
pub mod write;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use crate::app::App;
use crate::base::config::Config;
use crate::base::limits;
use crate::base::telemetry::LogThrottle;
use crate::kit::postgres;
use crate::sale::ids::{CouponId, Lane};
use crate::sale::order_log::{OrderLog, is_missing_group};
use crate::sale::pass::Pass;
use crate::sale::{settings, stock};

/// Why a pass didn't get through. It will be repeated.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// Redis didn't answer.
    #[error("Redis: {0}")]
    Redis(#[from] RedisError),
    /// Postgres didn't answer.
    #[error("Postgres: {0}")]
    Postgres(#[from] sqlx::Error),
    /// Postgres failed before, and still doesn't answer.
    #[error("Postgres doesn't answer")]
    PostgresAway,
    /// The buyers' locks ran out before the commit.
    #[error("the buyers' locks were lost before the commit")]
    LocksLost,
}

/// A worker of one lane.
pub struct LaneWorker {
    app: Arc<App>,
    log: OrderLog,
    settings: WorkerSettings,
    /// Where the next look at our own pending entries begins; `None` when there can't be any.
    pending_from: Option<String>,
    /// Entries seen in this round of pending ones whose lock was held elsewhere.
    contended: usize,
    /// No look at pending entries before this time: a lock that was just held is still held.
    pending_not_before: Instant,
    /// Entries in the next batch: halved when Postgres fails (a batch may be more than it can write
    /// within its time limit), doubled up to the setting when it doesn't.
    batch_orders: usize,
    /// Set when Postgres has failed. Until it answers again nothing is read: what we hold grows old,
    /// and a worker that can reach it takes it over (reading it again would keep it young).
    postgres_away: bool,
    /// Set once the group has been seen; from then on its absence is news.
    group_seen: bool,
    /// Sales that had more entries than units a moment ago: their next entries are written by themselves.
    overflowing: BTreeSet<CouponId>,
    /// Whether it is the one that is called when there is more than the other can write.
    is_relief: bool,
    /// Calls a relief: a batch was full.
    behind: Arc<Notify>,
}

/// What the passes need to know.
#[derive(Clone, Copy, Debug)]
pub struct WorkerSettings {
    /// Orders written in one transaction, at most.
    pub batch_orders_max: usize,
    /// Entries that have been held this long are taken over.
    pub take_over_idle: Duration,
    /// Period of the recover pass.
    pub recover_period: Duration,
}

/// Starts the workers of all lanes, and the passes beside them, as tasks of the service. A lane that another
/// process adds is noticed within a second.
pub fn start(app: &Arc<App>, config: &Config) {
    passes::start(app, config);
    let (app, settings) = (app.clone(), WorkerSettings::from(config));
    let shutdown = app.shutdown.clone();
    shutdown.clone().spawn(async move {
        let mut started = HashSet::new();
        let mut throttle = LogThrottle::default();
        while !shutdown.stop_token().is_cancelled() {
            match settings::read(&app.stores.pool).await {
                Ok(stored) => {
                    for lane in Lane::all(stored.lanes).filter(|lane| started.insert(*lane)) {
                        let worker = LaneWorker::new(app.clone(), lane, consumer_name(), settings);
                        for _ in 1..limits::WRITERS_MAX {
                            shutdown.spawn(worker.relief().run());
                        }
                        shutdown.spawn(worker.run());
                    }
                }
                Err(error) if throttle.allows() => {
                    tracing::warn!(%error, "the number of lanes can't be read; trying again");
                }
                Err(_) => {}
            }
            tokio::select! {
                () = shutdown.stop_token().cancelled() => {}
                () = tokio::time::sleep(limits::LANES_PERIOD) => {}
            }
        }
    });
}

/// Unique for each writer, or two of them would take each other's pending entries for their own.
pub fn consumer_name() -> String {
    format!("{}-{}", std::process::id(), Uuid::new_v4().simple())
}

impl LaneWorker {
    /// A worker that reads as `consumer`.
    pub fn new(app: Arc<App>, lane: Lane, consumer: String, settings: WorkerSettings) -> Self {
        let log = OrderLog::new(app.stores.redis.clone(), &app.stores.keys, lane, consumer);
        Self {
            app,
            log,
            settings,
            pending_from: Some("0".into()),
            contended: 0,
            pending_not_before: Instant::now(),
            batch_orders: settings.batch_orders_max,
            postgres_away: false,
            group_seen: false,
            overflowing: BTreeSet::new(),
            is_relief: false,
            behind: Arc::default(),
        }
    }

    /// One that works when this one can't keep up.
    fn relief(&self) -> Self {
        let relief = Self::new(self.app.clone(), self.log.lane(), consumer_name(), self.settings);
        Self { is_relief: true, behind: self.behind.clone(), ..relief }
    }

    /// Runs the passes until the service stops, then writes what is left and leaves the group.
    async fn run(mut self) {
        let stop = self.app.shutdown.stop_token().clone();
        let mut throttle = LogThrottle::default();
        let mut backoff = limits::BACKOFF_MIN;
        let (mut recover_at, mut tidy_up_at) = (Instant::now(), Instant::now());
        while !stop.is_cancelled() {
            let turn = match self.is_relief {
                true => self.relief_turn().await,
                false => self.turn(&mut recover_at, &mut tidy_up_at).await,
            };
            match turn {
                Ok(()) => backoff = limits::BACKOFF_MIN,
                Err(error) => {
                    self.heal(error, &mut throttle).await;
                    self.pause(backoff).await;
                    backoff = (backoff * 2).min(limits::BACKOFF_MAX);
                }
            }
        }
        self.drain().await;
    }

    /// Runs what is due: the timed passes, then one write pass that waits no longer than until the next.
    async fn turn(
        &mut self,
        recover_at: &mut Instant,
        tidy_up_at: &mut Instant,
    ) -> Result<(), PassError> {
        if !self.group_seen {
            let group = self.ensure_group().await;
            group.inspect_err(|_| self.app.count_failure(Pass::Write))?;
        }
        if Instant::now() >= *recover_at {
            let recovered = self.recover_pass().await;
            recovered.inspect_err(|_| self.app.count_failure(Pass::Recover))?;
            *recover_at = Instant::now() + self.settings.recover_period;
        }
        if Instant::now() >= *tidy_up_at {
            let tidied_up = self.tidy_up_pass().await;
            tidied_up.inspect_err(|_| self.app.count_failure(Pass::TidyUp))?;
            *tidy_up_at = Instant::now() + limits::TRIM_PERIOD;
        }
        let patience = (*recover_at).min(*tidy_up_at).saturating_duration_since(Instant::now());
        let is_full = self.write_full(patience.max(Duration::from_millis(1))).await?;
        if is_full == Some(false) {
            // What comes meanwhile is written together: each batch has Redis and Postgres wait for the disk.
            self.pause(limits::WRITE_PAUSE).await;
        }
        Ok(())
    }

    /// Waits until it is called, unless it has something left to do; then one write pass.
    async fn relief_turn(&mut self) -> Result<(), PassError> {
        if self.pending_from.is_none() {
            let stop = self.app.shutdown.stop_token();
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = self.behind.notified() => {}
            }
        }
        self.write_full(limits::CONTENTION_PAUSE).await?;
        Ok(())
    }

    /// A write pass that calls the relief when there is more; says whether its batch was full, if it had any.
    async fn write_full(&mut self, patience: Duration) -> Result<Option<bool>, PassError> {
        let batch = self.batch_orders;
        let written = self.write_pass(patience).await;
        let entries = written.inspect_err(|_| self.app.count_failure(Pass::Write))?.entries;
        let is_full = (entries > 0).then_some(entries >= batch);
        if is_full == Some(true) {
            self.behind.notify_one();
        }
        Ok(is_full)
    }

    async fn pause(&self, pause: Duration) {
        tokio::select! {
            () = self.app.shutdown.stop_token().cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }

    /// Logs what went wrong and mends what can be mended: a vanished group.
    async fn heal(&mut self, error: PassError, throttle: &mut LogThrottle) {
        // Something may have been delivered to us without our seeing it.
        self.read_pending_again();
        let lane = self.log.lane();
        if throttle.allows() {
            tracing::warn!(%lane, %error, "a pass over the order log failed; trying again");
        }
        if let PassError::Redis(error) = &error
            && is_missing_group(error)
            && let Err(error) = self.ensure_group().await
        {
            tracing::debug!(%lane, %error, "the group could not be created yet");
        }
    }

    /// Creates the group from the log's start if it isn't there. If it had been there before, or the log
    /// itself is missing, somebody has to ask whether orders are gone with it.
    pub async fn ensure_group(&mut self) -> Result<(), PassError> {
        let created = self.log.ensure_group().await?;
        if created.group && (self.group_seen || created.log) {
            self.compare_stores(created.log);
        }
        self.group_seen = true;
        self.read_pending_again();
        Ok(())
    }

    /// Compares the stores beside the work, which goes on meanwhile. Whether the log was missing says
    /// little by itself: before the first claim there is none, and after a loss the next claim has
    /// created it anew.
    fn compare_stores(&self, log_was_missing: bool) {
        let (app, lane, vanished) = (self.app.clone(), self.log.lane(), self.group_seen);
        if vanished {
            tracing::warn!(%lane, log_was_missing, "the group of the order log had vanished; it begins again at the log's start");
        }
        let stop = app.shutdown.stop_token().clone();
        self.app.shutdown.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = alarm_if_data_lost(&app, lane, vanished && log_was_missing) => {}
            }
        });
    }

    /// Writes what is in the log by now, for a bounded time. What stays is read by the next worker.
    async fn drain(&mut self) {
        let deadline = Instant::now() + limits::DOOR_DRAIN_MAX;
        self.read_pending_again();
        while Instant::now() < deadline {
            match self.write_pass(Duration::ZERO).await {
                Ok(written) if written.entries == 0 => break,
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
    async fn require_postgres(&mut self) -> Result<(), PassError> {
        if self.postgres_away && !postgres::answers(&self.app.stores.pool).await {
            return Err(PassError::PostgresAway);
        }
        self.postgres_away = false;
        Ok(())
    }

    fn read_pending_again(&mut self) {
        self.pending_from = Some("0".into());
        self.contended = 0;
    }
}

/// Raises the alarm if a log was lost for certain, or the stores don't agree.
async fn alarm_if_data_lost(app: &App, lane: Lane, log_lost: bool) {
    let sales = stock::loaded(&app.stores.pool).await.unwrap_or_default();
    if !log_lost && sales.iter().all(|coupon| coupon.lane() != lane) {
        return;
    }
    match app.reconciler.compare().await {
        Ok(report) if report.agrees() && !log_lost => {}
        Ok(report) => {
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

impl From<&Config> for WorkerSettings {
    fn from(config: &Config) -> Self {
        Self {
            batch_orders_max: usize::try_from(config.batch_orders_max).unwrap_or(usize::MAX),
            take_over_idle: config.take_over_idle(),
            recover_period: config.recover_period(),
        }
    }
}
