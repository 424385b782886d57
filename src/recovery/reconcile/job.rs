//! Comparisons by schedule and on request, all of them on record.
//!
//! Every process with the role `worker` regularly asks whether a comparison is due. The record in Postgres makes it due
//! for one of them. All of them then show the result of the last comparison, whichever process made it: as gauges, and
//! as a log line when it has changed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::PgPool;

use crate::base::gauges::Gauge;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::Metrics;
use crate::coupon::orphans;
use crate::recovery::reconcile::runs::{self, AskedBy, Finding, Run};
use crate::recovery::reconcile::{self, Disagreement, Kind, Report};
use crate::store::ids::RunId;
use crate::store::postgres::session_lock::{LockKey, LockSession};
use crate::store::{Failure, Stores};

/// Answer to a request for a comparison.
#[derive(Debug)]
pub enum Asked {
    /// The record, as far as it has come.
    Compared(Run),
    /// Another comparison is under way: this one, if it is on record.
    Busy(Option<RunId>),
}

/// Advisory lock of the process that compares: "comp" in ASCII.
const COMPARES: LockKey = (0x636f_6d70, 0);

/// Compares the stores, records the results, and shows them.
pub struct Reconciler {
    stores: Stores,
    metrics: Arc<Metrics>,
    /// Runs comparisons: a client that asked for one may disconnect.
    shutdown: Shutdown,
    /// The comparison shown last, and its findings.
    shown: Mutex<Option<(RunId, Vec<Finding>)>>,
}

impl Reconciler {
    pub fn new(stores: Stores, metrics: Arc<Metrics>, shutdown: Shutdown) -> Self {
        Self { stores, metrics, shutdown, shown: Mutex::default() }
    }

    /// Compares now. Returns the record as it stands after [`limits::RECONCILE_WAIT_MAX`] at the latest; the comparison
    /// continues.
    pub async fn ask(&self) -> Result<Asked, Failure> {
        let pool = &self.stores.pool;
        let Some(turn) = take_turn(pool, limits::TURN_WAIT_MAX).await? else {
            return Ok(Asked::Busy(runs::unfinished(pool).await?));
        };
        let run = runs::begin(pool, AskedBy::Api).await?;
        self.run(turn, run).await.map(Asked::Compared)
    }

    async fn run(&self, mut turn: LockSession, run: RunId) -> Result<Run, Failure> {
        let stores = self.stores.clone();
        let task = self.shutdown.spawn(async move {
            let compared = run_and_record(&stores, &mut turn, run).await;
            turn.close().await?;
            compared
        });
        if let Ok(ended) = tokio::time::timeout(limits::RECONCILE_WAIT_MAX, task).await {
            ended.map_err(|_| sqlx::Error::WorkerCrashed)??;
        }
        Ok(self.get(run).await?.ok_or(sqlx::Error::RowNotFound)?)
    }

    pub async fn get(&self, run: RunId) -> sqlx::Result<Option<Run>> {
        // Ids are whole numbers, so "before the next id" with a limit of one means "this one or older".
        let before = RunId::new(run.get().saturating_add(1)).unwrap_or(run);
        let found = self.list(Some(before), 1).await?.pop();
        Ok(found.filter(|found| found.run_id == run))
    }

    /// Comparisons older than `before`, newest first.
    pub async fn list(&self, before: Option<RunId>, limit: u32) -> sqlx::Result<Vec<Run>> {
        runs::list(&self.stores.pool, before, limit).await
    }

    /// Compares if that is due (never if `period` is zero), and shows the result of the last comparison. A shutdown
    /// cancels the comparison.
    pub async fn run_once(&self, period: Duration) -> Result<(), Failure> {
        tokio::select! {
            () = self.shutdown.stop_token().cancelled() => Ok(()),
            passed = self.compare_if_due(period) => passed,
        }
    }

    async fn compare_if_due(&self, period: Duration) -> Result<(), Failure> {
        let pool = &self.stores.pool;
        if self.is_due(period).await?
            && let Some(mut turn) = take_turn(pool, Duration::ZERO).await?
        {
            // Checked again under the lock, since no other comparison can begin now.
            if self.is_due(period).await? {
                let run = runs::begin(pool, AskedBy::Period).await?;
                let done = run_and_record(&self.stores, &mut turn, run).await;
                done.inspect_err(|_| self.metrics.reconcile_failed.increment(1))?;
            }
            turn.close().await?;
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
        // Findings without their numbers, which may change with every claim.
        let about = |findings: &[Finding]| -> Vec<(String, Option<_>)> {
            findings.iter().map(|finding| (finding.code.clone(), finding.coupon_id)).collect()
        };
        if about(&findings) != about(&before) {
            log_change(&run, &findings);
        }
        *shown = Some((run.run_id, findings));
    }
}

/// Waits up to `wait` for the turn to compare: of all processes, one compares at a time. `None` if another comparison
/// is still under way. A process that wakes up from a pause without its turn may continue for a moment; two comparisons
/// at once cost time and do no harm.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub async fn take_turn(pool: &PgPool, wait: Duration) -> sqlx::Result<Option<LockSession>> {
    LockSession::with_lock(pool, limits::TURN_SILENCE_MAX, COMPARES, wait).await
}

/// Compares, closes the lanes in which Redis has other buyers or revisions than Postgres, recounts `sold` where it is
/// wrong, and records the findings or the failure.
pub async fn run_and_record(
    stores: &Stores,
    turn: &mut LockSession,
    run: RunId,
) -> Result<Report, Failure> {
    let pool = &stores.pool;
    let compared = async {
        let mut report = reconcile::check(stores).await?;
        reconcile::close_lanes(stores, &report).await?;
        let orphan = |coupon| {
            let words = "Redis has a sale under this id of which Postgres knows nothing. Its buyers have no orders";
            Disagreement::of(coupon, Kind::SaleOrphaned, words)
        };
        report.disagreements.extend(orphans::find(stores).await?.into_iter().map(orphan));
        reconcile::recount(stores, &report).await?;
        Ok::<_, Failure>(report)
    };
    match turn.while_held(limits::TURN_BEAT, compared).await {
        Ok(report) => {
            runs::finish(pool, run, &report).await?;
            Ok(report)
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

/// The last comparison: when it ended, how long it took, and the number of disagreements of each kind.
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
