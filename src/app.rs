//! The assembled service: one field for each capability.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redisson_locks::ReentrantLocks;
use secrecy::SecretString;

use crate::base::clock::Clock;
use crate::base::config::Config;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::{LogThrottle, Metrics, RequestIds};
use crate::kit::id::IdGenerator;
use crate::kit::jwt::Tokens;
use crate::kit::locks::reentrant_locks;
use crate::kit::rate_limit::RateLimit;
use crate::kit::signature::Signatures;
use crate::sale::Stores;
use crate::sale::archive::Archive;
use crate::sale::claim::calls::{Bounds, ClaimScript};
use crate::sale::claim::claims::Claims;
use crate::sale::claim::outcome::ClaimOutcome;
use crate::sale::claim::readiness::Readiness;
use crate::sale::claim::regular::RegularClaims;
use crate::sale::claim::sold_out::SoldOutSales;
use crate::sale::claim::sold_out_listener;
use crate::sale::claim::status::ClaimStatuses;
use crate::sale::coupon::changes::CouponChanges;
use crate::sale::coupon::create::Coupons;
use crate::sale::coupon::load::WarmUp;
use crate::sale::installation;
use crate::sale::log::backlog::Backlog;
use crate::sale::order::discard::DeadLetters;
use crate::sale::order::expiry::Expiry;
use crate::sale::order::give_back::pass::StockReturns;
use crate::sale::order::ids::OrderIds;
use crate::sale::order::moves::OrderMoves;
use crate::sale::order::waiters::OrderWaiters;
use crate::sale::order::write::Orders;
use crate::sale::pass::Pass;
use crate::sale::payment::Payments;
use crate::sale::postponed::Postponed;
use crate::sale::reconcile::gauges::Numbers;
use crate::sale::reconcile::pass::Reconciler;

/// The service. Everything in it can be shared; both doors hold it by `Arc`.
pub struct App {
    /// Takes claims: the path that has to be fast.
    pub claims: Claims,
    /// Tells what became of claims.
    pub claim_statuses: ClaimStatuses,
    /// Creates and reads coupons.
    pub coupons: Arc<Coupons>,
    /// Changes coupons.
    pub coupon_changes: Arc<CouponChanges>,
    /// Gets sales into Redis.
    pub warm_up: Arc<WarmUp>,
    /// Relieves Redis of sales that are over.
    pub archive: Archive,
    /// What is remembered of sold-out sales.
    pub sold_out: Arc<SoldOutSales>,
    /// Tells the generator of order ids what the stores know.
    pub order_ids: OrderIds,
    /// Reads orders, and writes those that the log brings.
    pub orders: Orders,
    /// Cancels and redeems orders.
    pub order_moves: OrderMoves,
    /// Takes payments and gives them back.
    pub payments: Payments,
    /// Knows the gateway that confirms payments, if there is one.
    pub callbacks: Option<Signatures>,
    /// Expires orders.
    pub expiry: Expiry,
    /// Lists and discards dead letters.
    pub dead_letters: DeadLetters,
    /// Gives units back.
    pub stock_returns: StockReturns,
    /// Items that passes have postponed.
    pub postponed: Postponed,
    /// Buyers' locks.
    pub locks: ReentrantLocks,
    /// Verifies who somebody is.
    pub tokens: Tokens,
    /// Bounds how often a user may claim, if a bound is set.
    pub user_claims: Option<RateLimit>,
    /// Requests that wait for their order.
    pub order_waiters: OrderWaiters,
    /// Accepted claims that wait to be written, and the bound on them.
    pub backlog: Arc<Backlog>,
    /// Whether claims can be taken.
    pub readiness: Readiness,
    /// Whether the route that does nothing is there, for measurements.
    pub no_op_route: bool,
    /// Names requests that come without a name.
    pub request_ids: RequestIds,
    /// Keeps an outage from filling the disk with one line for each request.
    pub failure_log: Mutex<LogThrottle>,
    /// Looks the operator's numbers up.
    pub numbers: Numbers,
    /// Compares the stores, and keeps the record.
    pub reconciler: Reconciler,
    /// Tells the time.
    pub clock: Clock,
    /// What the service counts.
    pub metrics: Arc<Metrics>,
    /// Stops the service, and owns its tasks.
    pub shutdown: Shutdown,
    /// For the worker; HTTP has no business with it.
    pub stores: Stores,
}

/// Starts the tasks that watch the backlog, listen for units that come back, and keep the service's own memory in
/// bounds.
pub fn start_housekeeping(app: &Arc<App>) {
    let Stores { redis, keys, .. } = &app.stores;
    sold_out_listener::listen(redis.clone(), keys, app.sold_out.clone(), &app.shutdown);
    repeat(app, limits::BACKLOG_PERIOD, |app| async move { app.backlog_pass().await });
    repeat(app, limits::HOUSEKEEPING_PERIOD, |app| async move { app.housekeeping_pass().await });
}

/// Runs a pass once a period until the service stops. A pass that hangs in a store then is given up, as if the process
/// had died in it.
pub fn repeat<F>(app: &Arc<App>, period: Duration, pass: impl Fn(Arc<App>) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send,
{
    let (app, stop) = (app.clone(), app.shutdown.stop_token().clone());
    app.shutdown.clone().spawn(async move {
        while !stop.is_cancelled() {
            let drained = async {
                stop.cancelled().await;
                tokio::time::sleep(limits::DOOR_DRAIN_MAX).await;
            };
            tokio::select! {
                () = drained => {}
                () = pass(app.clone()) => {}
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(period) => {}
            }
        }
    });
}

impl App {
    /// Looks how many accepted claims wait to be written. While Redis can't say, the last look holds.
    pub async fn backlog_pass(&self) {
        if let Ok(orders) = self.backlog.look().await {
            self.metrics.backlog.set(orders as f64);
        }
    }

    /// Counts a run of a pass that broke off.
    pub fn count_failure(&self, pass: Pass) {
        self.metrics.count_pass_failures(pass.name(), 1);
    }

    /// Folds the samples of histograms, learns of new lanes, and forgets users who haven't claimed for
    /// a while.
    pub async fn housekeeping_pass(&self) {
        self.metrics.fold_samples();
        self.readiness.learn_lanes().await;
        if let Err(error) = self.order_ids.pass().await {
            tracing::debug!(%error, "the newest order ids could not be looked up");
        }
        self.sold_out.forget_idle();
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
        let lanes = raise_lanes(config, &stores).await?;
        let epoch = installation::read(&stores.pool).await?.epoch;
        let Stores { pool, redis, keys } = &stores;
        let Base { metrics, postponed, warm_up, coupons, coupon_changes, order_moves } =
            Base::new(&stores, epoch, &shutdown)?;
        let orders = Orders::new(pool.clone(), config.batch_timeout());
        let ids = IdGenerator::new(keys.order_sequence(), config.order_id_block, clock.clone());
        let ids = Arc::new(ids);
        let locks = buyers_locks(config, &stores, &shutdown);
        let orders_max = config.backlog_orders_max;
        let backlog = Arc::new(Backlog::new(redis.clone(), keys.clone(), lanes, orders_max));
        let order_ids =
            OrderIds::informed(&stores, backlog.clone(), ids.clone(), clock.clone()).await;
        let regular = RegularClaims::new(&stores, ids.clone(), locks.clone(), orders.clone());
        let sold_out = remembered_sales(config, &stores, &shutdown);
        let script = ClaimScript::new(
            redis.clone(),
            keys.clone(),
            ids,
            Bounds::of(config, backlog.clone()),
            warm_up.clone(),
            sold_out.clone(),
            shutdown.clone(),
        );
        let moves = order_moves.clone();
        let payments = Payments::new(pool.clone(), moves, postponed.clone(), config);
        let (changes, after) = (coupon_changes.clone(), config.archive_after());
        let archive = Archive::new(&stores, changes, postponed.clone(), after, shutdown.clone());
        Ok(Arc::new(Self {
            claims: Claims::new(sold_out.clone(), script, warm_up.clone(), regular, orders.clone()),
            claim_statuses: ClaimStatuses::new(&stores, orders.clone(), warm_up.clone()),
            payments,
            callbacks: config.payment_callback_secret.as_ref().map(Signatures::new),
            expiry: Expiry::new(order_moves.clone(), postponed.clone(), config.payment_window()),
            dead_letters: DeadLetters::new(pool.clone(), order_moves.clone()),
            stock_returns: StockReturns::new(&stores, warm_up.clone(), postponed.clone()),
            coupons,
            archive,
            coupon_changes,
            warm_up,
            sold_out,
            order_ids,
            order_waiters: OrderWaiters::new(orders.clone(), &metrics, shutdown.clone()),
            orders,
            order_moves,
            locks,
            tokens: Tokens::new(secret),
            user_claims: NonZeroU32::new(config.user_claims_per_second).map(RateLimit::new),
            readiness: Readiness::new(&stores, backlog.clone(), shutdown.clone()),
            no_op_route: config.no_op_route,
            request_ids: RequestIds::default(),
            failure_log: Mutex::default(),
            numbers: Numbers::new(&stores, backlog.clone(), metrics.clone(), postponed.clone()),
            backlog,
            postponed,
            reconciler: Reconciler::new(stores.clone(), metrics.clone(), shutdown.clone()),
            clock,
            metrics,
            shutdown,
            stores,
        }))
    }
}

fn buyers_locks(config: &Config, stores: &Stores, shutdown: &Shutdown) -> ReentrantLocks {
    let (lease, lease_max) = (config.lock_lease(), Some(limits::LOCK_LEASE_MAX));
    reentrant_locks(&stores.redis, lease, lease_max, shutdown)
}

fn remembered_sales(config: &Config, stores: &Stores, shutdown: &Shutdown) -> Arc<SoldOutSales> {
    let (redis, keys) = (stores.redis.clone(), stores.keys.clone());
    Arc::new(SoldOutSales::new(redis, keys, config.sold_out_memory(), shutdown.clone()))
}

/// What the other capabilities stand on.
struct Base {
    metrics: Arc<Metrics>,
    postponed: Postponed,
    warm_up: Arc<WarmUp>,
    coupons: Arc<Coupons>,
    coupon_changes: Arc<CouponChanges>,
    order_moves: OrderMoves,
}

impl Base {
    fn new(stores: &Stores, epoch: i64, shutdown: &Shutdown) -> anyhow::Result<Self> {
        let passes = Pass::ALL.into_iter().map(Pass::name);
        let metrics = Arc::new(Metrics::new(ClaimOutcome::codes(), passes)?);
        let postponed = Postponed::new(stores.pool.clone(), metrics.clone());
        let warm_up = Arc::new(WarmUp::new(stores, epoch, metrics.clone(), postponed.clone()));
        let coupons = Arc::new(Coupons::new(stores, warm_up.clone(), shutdown.clone()));
        let coupon_changes = Arc::new(CouponChanges::new(
            stores,
            coupons.clone(),
            warm_up.clone(),
            postponed.clone(),
            shutdown.clone(),
        ));
        let order_moves = OrderMoves::new(stores.pool.clone(), shutdown.clone());
        Ok(Self { metrics, postponed, warm_up, coupons, coupon_changes, order_moves })
    }
}

/// Raises the number of lanes to what is asked for. Returns how many there are.
async fn raise_lanes(config: &Config, stores: &Stores) -> sqlx::Result<i32> {
    let asked = config.lanes.unwrap_or(1);
    let lanes = installation::raise_lanes(&stores.pool, asked).await?;
    if config.lanes.is_some() && lanes > asked {
        tracing::warn!(
            lanes,
            "there are more lanes than --lanes asks for, and coupons live in them: their number only grows"
        );
    }
    Ok(lanes)
}
