//! Periods of the passes over the whole installation; the passes themselves stand with their subject in `sale/`.
//!
//! Every worker process runs them. Two runs at the same moment do no harm: each pass is idempotent, or skips rows
//! that another run has locked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::app::{self, App};
use crate::base::config::Config;
use crate::base::limits;
use crate::base::telemetry::LogThrottle;
use crate::store::Failure;
use crate::store::pass::Pass;

/// Starts the passes as tasks of the service.
pub fn start(app: &Arc<App>, config: &Config) -> Vec<JoinHandle<()>> {
    let period = config.reconcile_period();
    let poll =
        if period.is_zero() { limits::RECONCILE_POLL } else { period.min(limits::RECONCILE_POLL) };
    vec![
        every(
            app,
            limits::NUMBERS_PERIOD,
            Pass::Numbers,
            |app| async move { app.numbers.pass().await },
        ),
        every(
            app,
            poll,
            Pass::Reconcile,
            move |app| async move { app.reconciler.pass(period).await },
        ),
        every(app, limits::STOCK_RETURN_PERIOD, Pass::StockReturns, |app| async move {
            while app.stock_returns.pass().await?.goes_on && !is_stopping(&app) {}
            Ok(())
        }),
        every(app, limits::CHANGES_PERIOD, Pass::Changes, |app| async move {
            app.coupon_changes.pass().await.map(drop)
        }),
        every(app, limits::LOAD_PERIOD, Pass::Load, |app| async move {
            app.loader.pass(limits::WARM_UP_AHEAD).await.map(drop)
        }),
        every(app, limits::ARCHIVE_PERIOD, Pass::Archive, |app| async move {
            app.archive.pass().await.map(drop)
        }),
        every(app, limits::EXPIRY_PERIOD, Pass::Expiry, |app| async move {
            while app.expiry.pass().await?.goes_on && !is_stopping(&app) {}
            Ok(())
        }),
        every(app, limits::RETENTION_PERIOD, Pass::Retention, |app| async move {
            while app.retention.pass().await?.goes_on && !is_stopping(&app) {}
            Ok(())
        }),
        every(app, limits::REFUND_PERIOD, Pass::Refunds, |app| async move {
            app.payments.refund_pass().await.map(drop)
        }),
    ]
}

/// True once the service stops: no pass runs on then without a pause.
fn is_stopping(app: &App) -> bool {
    app.shutdown.stop_token().is_cancelled()
}

/// Runs a pass once a period. A failed run is counted and logged; the next period tries again.
fn every<F>(
    app: &Arc<App>,
    period: Duration,
    name: Pass,
    pass: impl Fn(Arc<App>) -> F + Send + Sync + 'static,
) -> JoinHandle<()>
where
    F: Future<Output = Result<(), Failure>> + Send,
{
    let pass = Arc::new(pass);
    let throttle = Arc::new(Mutex::new(LogThrottle::default()));
    app::repeat(app, period, move |app| {
        let pass = pass.clone();
        let throttle = throttle.clone();
        async move {
            let Err(error) = pass(app.clone()).await else {
                return;
            };
            app.count_failure(name);
            if throttle.lock().is_ok_and(|mut throttle| throttle.allows()) {
                tracing::warn!(pass = name.name(), %error, "a pass failed; trying again");
            }
        }
    })
}
