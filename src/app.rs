//! The assembled service: one field for each capability.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use secrecy::SecretString;
use tokio::sync::Semaphore;

use crate::base::clock::Clock;
use crate::base::config::Config;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::{LogThrottle, Metrics};
use crate::kit::id::IdGenerator;
use crate::kit::jwt::Tokens;
use crate::kit::lock::owner::OwnerLocks;
use crate::kit::rate_limit::RateLimit;
use crate::sale::Stores;
use crate::sale::claim::{ClaimOutcome, Claims};
use crate::sale::claim_status::ClaimStatuses;
use crate::sale::coupon::Coupons;
use crate::sale::order::Orders;
use crate::sale::readiness::Readiness;
use crate::sale::regular::RegularClaims;
use crate::sale::settings;
use crate::sale::warm_up::WarmUp;

/// The service. Everything in it can be shared; both doors hold it by `Arc`.
pub struct App {
    /// Takes claims: the path that has to be fast.
    pub claims: Claims,
    /// Tells what became of claims.
    pub claim_statuses: ClaimStatuses,
    /// Creates and reads coupons.
    pub coupons: Coupons,
    /// Reads orders, and writes those that the log brings.
    pub orders: Orders,
    /// Buyers' locks.
    pub locks: OwnerLocks,
    /// Verifies who somebody is.
    pub tokens: Tokens,
    /// Bounds how often a user may claim, if a bound is set.
    pub user_claims: Option<RateLimit>,
    /// Bounds how many requests wait for their order at one time.
    pub waiters: Semaphore,
    /// Whether claims can be taken.
    pub readiness: Readiness,
    /// Keeps an outage from filling the disk with one line for each request.
    pub failure_log: Mutex<LogThrottle>,
    /// Held by whoever compares the stores: that is a lot of reading.
    pub comparison: tokio::sync::Mutex<()>,
    /// What the service counts.
    pub metrics: Arc<Metrics>,
    /// Stops the service, and owns its tasks.
    pub shutdown: Shutdown,
    /// For the worker; HTTP has no business with it.
    pub stores: Stores,
}

/// Starts the task that keeps the service's own memory in bounds and its gauges up to date.
pub fn start_housekeeping(app: &Arc<App>) {
    let (app, stop) = (app.clone(), app.shutdown.stop_token().clone());
    app.shutdown.clone().spawn(async move {
        while !stop.is_cancelled() {
            app.housekeeping_pass().await;
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(limits::HOUSEKEEPING_PERIOD) => {}
            }
        }
    });
}

impl App {
    /// Folds the samples of histograms, forgets users who haven't claimed for a while, and looks how
    /// many entries wait to be written.
    pub async fn housekeeping_pass(&self) {
        self.metrics.fold_samples();
        self.readiness.learn_lanes().await;
        if let Ok(entries) = self.readiness.backlog().await {
            self.metrics.backlog.set(entries as f64);
        }
        if let Some(limit) = &self.user_claims {
            limit.forget_idle();
        }
    }

    /// Puts the service together over these stores.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer or isn't migrated: without it nobody knows lanes and epoch.
    pub async fn assemble(
        config: &Config,
        stores: Stores,
        secret: &SecretString,
        clock: Clock,
        shutdown: Shutdown,
    ) -> anyhow::Result<Arc<Self>> {
        let asked = config.lanes.unwrap_or(1);
        let lanes = settings::raise_lanes(&stores.pool, asked).await?;
        if config.lanes.is_some() && lanes > asked {
            tracing::warn!(
                lanes,
                "there are more lanes than --lanes asks for, and coupons live in them: their number only grows"
            );
        }
        let epoch = settings::read(&stores.pool).await?.epoch;
        let Stores { pool, redis, keys } = &stores;
        let metrics = Arc::new(Metrics::new(ClaimOutcome::codes())?);
        let orders = Orders::new(pool.clone());
        let ids = IdGenerator::new(keys.order_sequence(), config.order_id_block, clock);
        let ids = Arc::new(ids);
        let locks = OwnerLocks::new(redis.clone(), config.lock_lease(), shutdown.clone());
        let warm_up = Arc::new(WarmUp::new(&stores, epoch, metrics.clone()));
        let regular = RegularClaims::new(&stores, ids.clone(), locks.clone(), orders.clone());
        let (redis, keys) = (redis.clone(), keys.clone());
        Ok(Arc::new(Self {
            claims: Claims::new(redis, keys, ids, warm_up.clone(), regular, orders.clone()),
            claim_statuses: ClaimStatuses::new(&stores, orders.clone(), warm_up.clone()),
            coupons: Coupons::new(&stores, warm_up, shutdown.clone()),
            orders,
            locks,
            tokens: Tokens::new(secret),
            user_claims: NonZeroU32::new(config.user_claims_per_second).map(RateLimit::new),
            waiters: Semaphore::new(limits::PREFER_WAITERS_MAX),
            readiness: Readiness::new(&stores, lanes, config.backlog_max, shutdown.clone()),
            failure_log: Mutex::default(),
            comparison: tokio::sync::Mutex::default(),
            metrics,
            shutdown,
            stores,
        }))
    }
}
