//! Comparisons by the clock and on request; each is on record.
//!
//! Every process with the role `worker` asks now and then whether a comparison is due; the record in Postgres makes
//! it due for one of them. All of them then show the result of the last one, of any process: as gauges, and as one
//! line in the log when it has changed. The periodic comparison never repairs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::base::gauges::Gauge;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::Metrics;
use crate::sale::audit::{self, Action, Actor, Event};
use crate::sale::coupon::orphans;
use crate::sale::ids::RunId;
use crate::sale::reconcile::repair::{Repair, repair};
use crate::sale::reconcile::runs::{self, AskedBy, Before, Finding, Run, RunKey};
use crate::sale::reconcile::turn::Turn;
use crate::sale::reconcile::{self, Disagreement, Kind, Report};
use crate::sale::{Failure, Stores};

/// Answer to a request for a comparison.
#[derive(Debug)]
pub enum Asked {
    /// Its record, as far as it has come.
    Compared(Run),
    /// Another request has begun a comparison under this key.
    KeyReused,
    /// Another comparison goes on: this one, if it is on record.
    Busy(Option<RunId>),
}

/// Compares, records, shows.
pub struct Reconciler {
    stores: Stores,
    metrics: Arc<Metrics>,
    /// Owner of comparisons: a client that asked for one may disconnect.
    shutdown: Shutdown,
    /// The last run that was shown, and its findings.
    shown: Mutex<Option<(RunId, Vec<Finding>)>>,
}

impl Reconciler {
    /// A reconciler that has shown no run yet.
    pub fn new(stores: Stores, metrics: Arc<Metrics>, shutdown: Shutdown) -> Self {
        Self { stores, metrics, shutdown, shown: Mutex::default() }
    }

    /// Compares now, off the record. `None` if another comparison goes on for longer than
    /// [`limits::TURN_WAIT_LONG`].
    pub async fn compare(&self) -> Result<Option<Report>, Failure> {
        let Stores { pool, redis, keys } = &self.stores;
        let Some(mut turn) = Turn::take(pool, limits::TURN_WAIT_LONG).await? else {
            return Ok(None);
        };
        let report = turn.hold(reconcile::check(pool, redis, keys)).await?;
        turn.end().await?;
        Ok(Some(report))
    }

    /// Compares now, and repairs what it may if `repairs`; once for a key. Replies with the record as it stands after
    /// [`limits::RECONCILE_WAIT_MAX`] at the latest; the comparison goes on.
    ///
    /// A repair is entered in the book of changes before it begins; its record has the repairs.
    pub async fn ask(
        &self,
        key: Option<RunKey>,
        repairs: bool,
        by: &Actor,
    ) -> Result<Asked, Failure> {
        let pool = &self.stores.pool;
        if let Some(before) = self.begun_before(key.as_ref()).await? {
            return self.broken_off(before).await;
        }
        let Some(turn) = Turn::take(pool, limits::TURN_WAIT_MAX).await? else {
            // The same request may have begun the one that goes on.
            return match self.begun_before(key.as_ref()).await? {
                Some(before) => Ok(before),
                None => Ok(Asked::Busy(runs::unfinished(pool).await?)),
            };
        };
        // Asked again in the turn, in which no other begins.
        if let Some(before) = self.begun_before(key.as_ref()).await? {
            turn.end().await?;
            return Ok(before);
        }
        let run = runs::begin(pool, AskedBy::Api, key.as_ref()).await?;
        self.run(turn, run, repairs, by).await.map(Asked::Compared)
    }

    async fn begun_before(&self, key: Option<&RunKey>) -> Result<Option<Asked>, Failure> {
        let Some(key) = key else {
            return Ok(None);
        };
        Ok(match runs::begun_under(&self.stores.pool, key).await? {
            Some(Before::Same(run)) => Some(Asked::Compared(self.record_of(run).await?)),
            Some(Before::KeyReused) => Some(Asked::KeyReused),
            None => None,
        })
    }

    /// A comparison without an end on record goes on, or its process died. It has died if the turn is free: its record
    /// tells so from now on, and the client need not ask for ever.
    async fn broken_off(&self, before: Asked) -> Result<Asked, Failure> {
        let Asked::Compared(Run { run_id, finished_at: None, .. }) = before else {
            return Ok(before);
        };
        let pool = &self.stores.pool;
        let Some(turn) = Turn::take(pool, Duration::ZERO).await? else { return Ok(before) };
        if self.record_of(run_id).await?.finished_at.is_none() {
            runs::fail(pool, run_id, "its process died before it was done").await?;
        }
        turn.end().await?;
        self.record_of(run_id).await.map(Asked::Compared)
    }

    async fn run(
        &self,
        mut turn: Turn,
        run: RunId,
        repairs: bool,
        by: &Actor,
    ) -> Result<Run, Failure> {
        if repairs {
            let event = Event::of(Action::RepairStores, run.get());
            audit::note_alone(&self.stores.pool, by, event).await?;
        }
        let stores = self.stores.clone();
        let task = self.shutdown.spawn(async move {
            let compared = run_and_record(&stores, &mut turn, run, repairs).await;
            turn.end().await?;
            compared
        });
        if let Ok(ended) = tokio::time::timeout(limits::RECONCILE_WAIT_MAX, task).await {
            ended.map_err(|_| sqlx::Error::WorkerCrashed)??;
        }
        self.record_of(run).await
    }

    async fn record_of(&self, run: RunId) -> Result<Run, Failure> {
        Ok(self.get(run).await?.ok_or(sqlx::Error::RowNotFound)?)
    }

    /// One comparison.
    pub async fn get(&self, run: RunId) -> sqlx::Result<Option<Run>> {
        // Ids are whole numbers, so "before the next one" and a limit of one is "this one or older".
        let before = RunId::new(run.get().saturating_add(1)).unwrap_or(run);
        let found = self.list(Some(before), 1).await?.pop();
        Ok(found.filter(|found| found.run_id == run))
    }

    /// Comparisons, newest first, from before the given one on.
    pub async fn list(&self, before: Option<RunId>, limit: u32) -> sqlx::Result<Vec<Run>> {
        runs::list(&self.stores.pool, before, limit).await
    }

    /// Compares if that is due, and shows the result of the last comparison. With a period of zero none is due. A stop gives
    /// a comparison up.
    pub async fn pass(&self, period: Duration) -> Result<(), Failure> {
        tokio::select! {
            () = self.shutdown.stop_token().cancelled() => Ok(()),
            passed = self.compare_if_due(period) => passed,
        }
    }

    async fn compare_if_due(&self, period: Duration) -> Result<(), Failure> {
        let pool = &self.stores.pool;
        if self.is_due(period).await?
            && let Some(mut turn) = Turn::take(pool, Duration::ZERO).await?
        {
            // Asked again in the turn, in which no other begins.
            if self.is_due(period).await? {
                let run = runs::begin(pool, AskedBy::Period, None).await?;
                let done = run_and_record(&self.stores, &mut turn, run, false).await;
                done.inspect_err(|_| self.metrics.reconcile_failed.increment(1))?;
            }
            turn.end().await?;
        }
        if let Some(run) = runs::last_finished(pool).await? {
            self.show(run);
        }
        Ok(())
    }

    async fn is_due(&self, period: Duration) -> sqlx::Result<bool> {
        Ok(!period.is_zero() && runs::is_due(&self.stores.pool, period).await?)
    }

    fn show(&self, run: Run) {
        let Ok(mut shown) = self.shown.lock() else {
            return;
        };
        let before = match shown.take() {
            Some((id, findings)) if id == run.run_id => {
                *shown = Some((id, findings));
                return;
            }
            before => before.map(|(_, findings)| findings).unwrap_or_default(),
        };
        self.metrics.gauges.replace("reconcile", gauges(&run));
        let mut findings = run.findings.0.clone();
        findings.sort();
        // Findings without the numbers in them, which may change with every claim.
        let about = |findings: &[Finding]| -> Vec<(String, Option<_>)> {
            findings.iter().map(|finding| (finding.code.clone(), finding.coupon_id)).collect()
        };
        if about(&findings) != about(&before) {
            log_change(&run, &findings);
        }
        *shown = Some((run.run_id, findings));
    }
}

/// Compares in its turn, closes the lanes in which Redis has other buyers than Postgres, repairs if that is asked for, and
/// records all that, failures included.
pub async fn run_and_record(
    stores: &Stores,
    turn: &mut Turn,
    run: RunId,
    repairs: bool,
) -> Result<(Report, Vec<Repair>), Failure> {
    let Stores { pool, redis, keys } = stores;
    let compared = async {
        let mut report = reconcile::check(pool, redis, keys).await?;
        reconcile::close_lanes(stores, &report).await?;
        let orphan = |coupon| {
            let words = "Redis has a sale under this id of which Postgres knows nothing. Its buyers have no orders";
            Disagreement::of(coupon, Kind::SaleOrphaned, words)
        };
        report.disagreements.extend(orphans::find(stores).await?.into_iter().map(orphan));
        let done = if repairs { repair(stores, &report).await? } else { Vec::new() };
        Ok::<_, Failure>((report, done))
    };
    match turn.hold(compared).await {
        Ok((report, done)) => {
            runs::finish(pool, run, &report, &done).await?;
            Ok((report, done))
        }
        Err(failure) => {
            runs::fail(pool, run, &failure.to_string()).await?;
            Err(failure)
        }
    }
}

fn log_change(run: &Run, findings: &[Finding]) {
    if findings.is_empty() {
        tracing::info!(run = %run.run_id, "Redis and Postgres agree again");
        return;
    }
    let disagreements = run.disagreements;
    tracing::error!(run = %run.run_id, disagreements, "ALARM: Redis and Postgres disagree; docs/reconcile.md says what to do");
    for Finding { code, detail, .. } in findings.iter().take(limits::LOGGED_DISAGREEMENTS_MAX) {
        tracing::error!(code, "{detail}");
    }
}

/// End of the last comparison: its time, its duration, and the number of disagreements of each kind.
fn gauges(run: &Run) -> Vec<Gauge> {
    let finished_at = run.finished_at.unwrap_or(run.started_at);
    let took_ms = (finished_at - run.started_at).num_milliseconds();
    let mut gauges = vec![
        Gauge::plain("flash_sale_reconcile_disagreements", run.disagreements.unwrap_or(0) as f64),
        Gauge::plain("flash_sale_reconcile_duration_seconds", took_ms as f64 / 1_000.0),
        Gauge::plain(
            "flash_sale_reconcile_finished_timestamp_seconds",
            finished_at.timestamp() as f64,
        ),
    ];
    for code in Disagreement::CODES {
        let found = run.findings.iter().filter(|finding| finding.code == code).count();
        gauges.push(Gauge::labelled("flash_sale_reconcile_findings", "code", code, found as f64));
    }
    gauges
}
