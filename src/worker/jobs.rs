//! Schedules the jobs over the whole installation. Each job is defined in the module of its subject.
//!
//! Every worker process runs these jobs. Two runs at the same time do no harm: each job is idempotent, or skips rows
//! that another run has locked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::app::{self, App};
use crate::base::config::Config;
use crate::base::limits;
use crate::base::telemetry::LogThrottle;
use crate::store::Failure;
use crate::store::job::Job;

/// Starts the jobs as tasks of the service.
pub fn start(app: &Arc<App>, config: &Config) -> Vec<JoinHandle<()>> {
    let period = config.reconcile_period();
    let poll =
        if period.is_zero() { limits::RECONCILE_POLL } else { period.min(limits::RECONCILE_POLL) };
    vec![
        every(app, limits::NUMBERS_PERIOD, Job::Numbers, |app| async move {
            app.numbers.run_once().await
        }),
        every(app, poll, Job::Reconcile, move |app| async move {
            app.reconciler.run_once(period).await
        }),
        every(app, limits::STOCK_RETURN_PERIOD, Job::StockReturns, |app| async move {
            while app.stock_returns.run_once().await?.goes_on && !is_stopping(&app) {}
            Ok(())
        }),
        every(app, limits::CHANGES_PERIOD, Job::Changes, |app| async move {
            app.coupon_changes.run_once().await.map(drop)
        }),
        every(app, limits::LOAD_PERIOD, Job::Load, |app| async move {
            app.loader.run_once(limits::WARM_UP_AHEAD).await.map(drop)
        }),
        every(app, limits::ARCHIVE_PERIOD, Job::Archive, |app| async move {
            app.archive.run_once().await.map(drop)
        }),
        every(app, limits::EXPIRY_PERIOD, Job::Expiry, |app| async move {
            while app.expiry.run_once().await?.goes_on && !is_stopping(&app) {}
            Ok(())
        }),
        every(app, limits::WEBHOOKS_PERIOD, Job::Webhooks, |app| async move {
            app.webhooks.run_once().await
        }),
        every(app, limits::RETENTION_PERIOD, Job::Retention, |app| async move {
            while app.retention.run_once().await?.goes_on && !is_stopping(&app) {}
            Ok(())
        }),
        every(app, limits::REFUND_PERIOD, Job::Refunds, |app| async move {
            app.payments.refund_job().await.map(drop)
        }),
    ]
}

/// True once the service stops: no job may go on without a pause then.
fn is_stopping(app: &App) -> bool {
    app.shutdown.stop_token().is_cancelled()
}

/// Runs a job once a period. A failed run is counted and logged; the next period tries again.
fn every<F>(
    app: &Arc<App>,
    period: Duration,
    name: Job,
    job: impl Fn(Arc<App>) -> F + Send + Sync + 'static,
) -> JoinHandle<()>
where
    F: Future<Output = Result<(), Failure>> + Send,
{
    let job = Arc::new(job);
    let throttle = Arc::new(Mutex::new(LogThrottle::default()));
    app::repeat(app, period, move |app| {
        let job = job.clone();
        let throttle = throttle.clone();
        async move {
            let Err(error) = job(app.clone()).await else {
                return;
            };
            app.count_failure(name);
            if throttle.lock().is_ok_and(|mut throttle| throttle.allows()) {
                tracing::warn!(job = name.name(), %error, "a job failed; trying again");
            }
        }
    })
}
