//! Comparisons by the clock and on request; each is on record.
//!
//! Every process with the role `worker` asks now and then whether a comparison is due; the record in Postgres makes
//! it due for one of them. All of them then show the result of the last one, of any process: as gauges, and as one
//! line in the log when it has changed. The periodic comparison never repairs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use crate::base::gauges::Gauge;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::Metrics;
use crate::sale::audit::{self, Action, Actor, Event};
use crate::sale::coupon::orphans;
use crate::sale::ids::{CouponId, Lane, RunId};
use crate::sale::reconcile::readings::{self, Reading};
use crate::sale::reconcile::repair::{Repair, repair};
use crate::sale::reconcile::runs::{self, AskedBy, Before, Finding, Run, RunKey};
use crate::sale::reconcile::turn::Turn;
use crate::sale::reconcile::{self, Disagreement, Kind, Report};
use crate::sale::{Failure, Stores, fence};

/// Time of a reading to the pause behind it.
const AUDIT_PAUSES: u32 = 20;

/// A lane whose sales have to be read, and the time of the note about that.
type Unchecked = (Lane, DateTime<Utc>);

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
    /// Time that an order of a repair may stay unpaid after its claim.
    payment_window: Duration,
    /// The last run that was shown, and its findings.
    shown: Mutex<Option<(RunId, Vec<Finding>)>>,
}

impl Reconciler {
    /// A reconciler that has shown no run yet.
    pub fn new(
        stores: Stores,
        metrics: Arc<Metrics>,
        shutdown: Shutdown,
        payment_window: Duration,
    ) -> Self {
        Self { stores, metrics, shutdown, payment_window, shown: Mutex::default() }
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
        let run = runs::begin(pool, AskedBy::Api, Kind::Full, key.as_ref()).await?;
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
        let repairs = repairs.then_some(self.payment_window);
        let task = self.shutdown.spawn(async move {
            let compared = run_and_record(&stores, &mut turn, (run, Kind::Full), repairs).await;
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

    /// Compares if that is due, and shows the result of the last comparison. With a period of zero a comparison is due only
    /// after a recovery that compared nothing. A stop gives a comparison up.
    pub async fn pass(&self, period: Duration) -> Result<(), Failure> {
        tokio::select! {
            () = self.shutdown.stop_token().cancelled() => Ok(()),
            passed = self.compare_if_due(period) => passed,
        }
    }

    /// Reads the sale with the oldest reading in full, if that is due: the audit of the comparisons of what has changed,
    /// which takes at most a twentieth of the time. Returns the coupon. Its findings are told by the next comparison.
    pub async fn audit_next(&self) -> Result<Option<CouponId>, Failure> {
        let pool = &self.stores.pool;
        // The turn costs a connection of its own.
        if readings::audit_rests(pool).await? {
            return Ok(None);
        }
        let Some(mut turn) = Turn::take(pool, Duration::ZERO).await? else {
            return Ok(None);
        };
        let next = readings::next_of_audit(pool).await?;
        match next {
            Some(coupon) => self.audit(&mut turn, coupon).await?,
            None => readings::rest(pool, limits::READING_AUDIT_IDLE).await?,
        }
        turn.end().await?;
        Ok(next)
    }

    async fn audit(&self, turn: &mut Turn, coupon: CouponId) -> Result<(), Failure> {
        let Stores { pool, redis, keys } = &self.stores;
        // Should this process die of the sale, the next one leaves it alone for a while.
        readings::rest(pool, limits::READING_AUDIT_ASSUMED).await?;
        let began = Instant::now();
        let compared = turn.hold(reconcile::check_sale(pool, redis, keys, coupon)).await?;
        if let Some(report) = compared {
            // A sale that can't be read has its place behind the others, too.
            let read = report.readings.into_iter().next();
            let read = read.unwrap_or_else(|| Reading::failed(coupon, &report.disagreements));
            readings::note(pool, &[read]).await?;
        }
        let pause = AUDIT_PAUSES * began.elapsed();
        Ok(readings::rest(pool, pause.max(limits::READING_AUDIT_PAUSE)).await?)
    }

    async fn compare_if_due(&self, period: Duration) -> Result<(), Failure> {
        let pool = &self.stores.pool;
        if self.due(period).await?.is_some()
            && let Some(mut turn) = Turn::take(pool, Duration::ZERO).await?
        {
            // Asked again in the turn, in which no other begins.
            if let Some(unchecked) = self.due(period).await? {
                let run = runs::begin(pool, AskedBy::Period, Kind::Changed, None).await?;
                let lanes: Vec<Lane> = unchecked.iter().map(|(lane, _)| *lane).collect();
                let extent = (Kind::Changed, &lanes[..]);
                let done = compare_and_record(&self.stores, &mut turn, run, extent, None).await;
                done.inspect_err(|_| self.metrics.reconcile_failed.increment(1))?;
                fence::table::note_checked(pool, &unchecked).await?;
            }
            turn.end().await?;
        }
        if !period.is_zero() {
            self.audit_next().await?;
        }
        if let Some(run) = runs::last_finished(pool).await? {
            self.show(run);
        }
        Ok(())
    }

    /// The lanes whose sales have to be read, if a comparison is due: for their sake, or by the clock.
    async fn due(&self, period: Duration) -> sqlx::Result<Option<Vec<Unchecked>>> {
        let pool = &self.stores.pool;
        let unchecked = fence::table::unchecked(pool, limits::UNCHECKED_WAIT_MAX).await?;
        // A store that doesn't answer isn't asked again at once.
        if !unchecked.is_empty() && !runs::failed_since(pool, limits::RECONCILE_ASSUMED).await? {
            return Ok(Some(unchecked));
        }
        let is_due = !period.is_zero() && runs::is_due(pool, period).await?;
        Ok(is_due.then_some(unchecked))
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

/// Compares in its turn, repairs if that is asked for, and records both, failures included. `repairs` is the time that an
/// order of a repair may stay unpaid after its claim.
pub async fn run_and_record(
    stores: &Stores,
    turn: &mut Turn,
    (run, kind): (RunId, Kind),
    repairs: Option<Duration>,
) -> Result<(Report, Vec<Repair>), Failure> {
    compare_and_record(stores, turn, run, (kind, &[]), repairs).await
}

/// The same; the orders of sales in `unchecked` lanes are read in any case.
async fn compare_and_record(
    stores: &Stores,
    turn: &mut Turn,
    run: RunId,
    (kind, unchecked): (Kind, &[Lane]),
    repairs: Option<Duration>,
) -> Result<(Report, Vec<Repair>), Failure> {
    let Stores { pool, redis, keys } = stores;
    let compared = async {
        let mut report = reconcile::check_as(kind, unchecked, pool, redis, keys).await?;
        if kind == Kind::Full {
            // A look at all keys: only where somebody asks.
            let orphans = orphans::find(stores).await?.into_iter();
            let orphans = orphans.map(|coupon| Disagreement::SaleOrphaned { coupon });
            report.disagreements.extend(orphans);
        }
        readings::note(pool, &report.readings).await?;
        let done = match repairs {
            Some(payment_window) => repair(stores, &report, payment_window).await?,
            None => Vec::new(),
        };
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
    let left_out = [("unchanged", run.unchanged), ("waiting", run.waiting)];
    gauges.extend(left_out.map(|(why, sales)| {
        Gauge::labelled("flash_sale_reconcile_left_out_sales", "why", why, sales as f64)
    }));
    let read_at = run.oldest_reading_at.map(|at| at.timestamp() as f64);
    gauges.extend(
        read_at.map(|at| Gauge::plain("flash_sale_reconcile_oldest_reading_timestamp_seconds", at)),
    );
    for code in Disagreement::CODES {
        let found = run.findings.iter().filter(|finding| finding.code == code).count();
        gauges.push(Gauge::labelled("flash_sale_reconcile_findings", "code", code, found as f64));
    }
    for (status, orders) in run.orders.iter().flat_map(|orders| orders.iter()) {
        gauges.push(Gauge::labelled("flash_sale_orders", "status", status, *orders as f64));
    }
    gauges
}
