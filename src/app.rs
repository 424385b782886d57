//! The assembled service: one field for each capability.

use std::sync::Arc;
use std::time::Duration;

use redisson_locks::ReentrantLocks;

use crate::base::clock::Clock;
use crate::base::config::Config;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::Metrics;
use crate::kit::id::IdGenerator;
use crate::kit::locks::reentrant_locks;
use crate::sale::Stores;
use crate::sale::archive::Archive;
use crate::sale::claim::calls::{Bounds, ClaimScript};
use crate::sale::claim::claims::Claims;
use crate::sale::claim::memory::Memories;
use crate::sale::claim::memory::listener;
use crate::sale::claim::outcome::ClaimOutcome;
use crate::sale::claim::readiness::Readiness;
use crate::sale::claim::regular::RegularClaims;
use crate::sale::claim::status::ClaimStatuses;
use crate::sale::coupon::changes::CouponChanges;
use crate::sale::coupon::create::Coupons;
use crate::sale::coupon::load::Loader;
use crate::sale::epoch::Epoch;
use crate::sale::installation;
use crate::sale::log::backlog::Backlog;
use crate::sale::log::layout::LayoutInUse;
use crate::sale::loss::LossAlarm;
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

/// The service. Both doors hold it by `Arc`.
pub struct App {
    /// Takes claims: the path that has to be fast.
    pub claims: Claims,
    /// Tells the outcome of claims.
    pub claim_statuses: ClaimStatuses,
    /// Creates and reads coupons.
    pub coupons: Arc<Coupons>,
    /// Changes coupons.
    pub coupon_changes: Arc<CouponChanges>,
    /// Loads sales into Redis.
    pub loader: Arc<Loader>,
    /// Epoch that this process tells the scripts.
    pub epoch: Arc<Epoch>,
    /// Removes sales that are over from Redis.
    pub archive: Archive,
    /// Memories of sales.
    pub memories: Memories,
    /// Tells the generator of order ids the newest ids in the stores.
    pub order_ids: OrderIds,
    /// Reads orders, and writes those that the log brings.
    pub orders: Orders,
    /// Cancels and redeems orders.
    pub order_moves: OrderMoves,
    /// Takes payments and refunds them.
    pub payments: Payments,
    /// Expires orders.
    pub expiry: Expiry,
    /// Lists and discards dead letters.
    pub dead_letters: DeadLetters,
    /// Returns units to stock.
    pub stock_returns: StockReturns,
    /// Items that passes have postponed.
    pub postponed: Postponed,
    /// Buyers' locks.
    pub locks: ReentrantLocks,
    /// Requests that wait for their order.
    pub order_waiters: OrderWaiters,
    /// Accepted claims that wait to be written, and the bound on them.
    pub backlog: Arc<Backlog>,
    /// Layout of the log that accepted claims are appended to.
    pub layout: Arc<LayoutInUse>,
    /// Whether claims can be taken.
    pub readiness: Readiness,
    /// Looks the operator's numbers up.
    pub numbers: Numbers,
    /// Compares the stores, and keeps the record.
    pub reconciler: Reconciler,
    /// Tells the time.
    pub clock: Clock,
    /// Counters of the service.
    pub metrics: Arc<Metrics>,
    /// Stops the service, and owns its tasks.
    pub shutdown: Shutdown,
    /// The stores, for the worker; HTTP doesn't use them.
    pub stores: Stores,
}

/// Starts the tasks that watch the backlog, listen for units that come back, and keep the service's own memory in
/// bounds.
pub fn start_housekeeping(app: &Arc<App>) {
    let Stores { redis, keys, .. } = &app.stores;
    listener::listen(redis.clone(), keys, app.memories.clone(), &app.shutdown);
    repeat(app, limits::BACKLOG_PERIOD, |app| async move { app.backlog_pass().await });
    repeat(app, limits::HOUSEKEEPING_PERIOD, |app| async move { app.housekeeping_pass().await });
}

/// Runs a pass once a period until the service stops. A pass that still hangs in a store then is given up, as if the
/// process had died in it.
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
    /// Counts the accepted claims that wait to be written. While Redis doesn't answer, the last count holds.
    pub async fn backlog_pass(&self) {
        if let Ok(orders) = self.backlog.look().await {
            self.metrics.backlog.set(orders as f64);
        }
    }

    /// Counts a run of a pass that broke off.
    pub fn count_failure(&self, pass: Pass) {
        self.metrics.count_pass_failures(pass.name(), 1);
    }

    /// Folds the samples of histograms, learns of new lanes, and forgets users without a claim in the last time.
    pub async fn housekeeping_pass(&self) {
        self.metrics.fold_samples();
        self.readiness.learn_lanes().await;
        if let Err(error) = self.layout.pass().await {
            tracing::debug!(%error, "older processes could not be looked for");
        }
        if let Err(error) = self.order_ids.pass().await {
            tracing::debug!(%error, "the newest order ids could not be looked up");
        }
        self.memories.forget_idle();
    }

    /// Puts the service together over these stores.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer or isn't migrated: lanes and epoch stand only there.
    pub async fn assemble(
        config: &Config,
        stores: Stores,
        clock: Clock,
        shutdown: Shutdown,
    ) -> anyhow::Result<Arc<Self>> {
        let lanes = raise_lanes(config, &stores).await?;
        let epoch = installation::read(&stores.pool).await?.epoch;
        let Stores { pool, redis, keys } = &stores;
        let Base { metrics, postponed, epoch, loss, loader, coupons, coupon_changes, order_moves } =
            Base::new(&stores, epoch, &shutdown)?;
        let orders = Orders::new(pool.clone(), config.batch_timeout());
        let ids = IdGenerator::new(keys.order_sequence(), config.order_id_block, clock.clone());
        let ids = Arc::new(ids);
        let locks = buyers_locks(config, &stores, &shutdown);
        let orders_max = config.backlog_orders_max;
        let backlog = Arc::new(Backlog::new(redis.clone(), keys.clone(), lanes, orders_max));
        let order_ids =
            OrderIds::informed(&stores, backlog.clone(), ids.clone(), clock.clone()).await;
        let memories = empty_memories(config, &stores, &shutdown);
        let layout = LayoutInUse::looked_up(pool).await?;
        let claims = {
            let regular = RegularClaims::new(&stores, ids.clone(), locks.clone(), orders.clone());
            let bounds = Bounds::of(config, backlog.clone());
            let connected = (redis.clone(), keys.clone());
            let told = (layout.clone(), epoch.clone(), memories.clone());
            let script = ClaimScript::new(connected, ids, bounds, told, shutdown.clone());
            let loader = loader.clone();
            let epoch = epoch.clone();
            let orders = orders.clone();
            Claims::new(memories.clone(), script, loader, epoch, loss, regular, orders)
        };
        let stock_returns =
            StockReturns::new(&stores, loader.clone(), epoch.clone(), postponed.clone());
        let moves = order_moves.clone();
        let payments = Payments::new(pool.clone(), moves, postponed.clone(), config);
        let changes = coupon_changes.clone();
        let after = config.archive_after();
        let archive = Archive::new(&stores, changes, postponed.clone(), after, shutdown.clone());
        Ok(Arc::new(Self {
            claims,
            claim_statuses: ClaimStatuses::new(&stores, orders.clone(), loader.clone()),
            payments,
            expiry: Expiry::new(order_moves.clone(), postponed.clone(), config.payment_window()),
            dead_letters: DeadLetters::new(pool.clone(), order_moves.clone()),
            stock_returns,
            coupons,
            archive,
            coupon_changes,
            loader,
            epoch,
            memories,
            order_ids,
            order_waiters: OrderWaiters::new(orders.clone(), &metrics, shutdown.clone()),
            orders,
            order_moves,
            locks,
            readiness: Readiness::new(&stores, backlog.clone(), shutdown.clone()),
            numbers: Numbers::new(&stores, backlog.clone(), metrics.clone(), postponed.clone()),
            backlog,
            layout,
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
    let lease = config.lock_lease();
    let lease_max = Some(limits::LOCK_LEASE_MAX);
    reentrant_locks(&stores.redis, lease, lease_max, shutdown)
}

fn empty_memories(config: &Config, stores: &Stores, shutdown: &Shutdown) -> Memories {
    let redis = stores.redis.clone();
    let keys = stores.keys.clone();
    Memories::new(redis, keys, config.sold_out_memory(), shutdown.clone())
}

/// Parts on which the other capabilities stand.
struct Base {
    metrics: Arc<Metrics>,
    postponed: Postponed,
    epoch: Arc<Epoch>,
    loss: Arc<LossAlarm>,
    loader: Arc<Loader>,
    coupons: Arc<Coupons>,
    coupon_changes: Arc<CouponChanges>,
    order_moves: OrderMoves,
}

impl Base {
    fn new(stores: &Stores, epoch: i64, shutdown: &Shutdown) -> anyhow::Result<Self> {
        let passes = Pass::ALL.into_iter().map(Pass::name);
        let metrics = Arc::new(Metrics::new(ClaimOutcome::codes(), passes)?);
        let postponed = Postponed::new(stores.pool.clone(), metrics.clone());
        let epoch = Arc::new(Epoch::new(stores.pool.clone(), epoch));
        let loss = Arc::new(LossAlarm::new(metrics.clone()));
        let loader = Arc::new(Loader::new(stores, loss.clone(), postponed.clone()));
        let coupons = Arc::new(Coupons::new(stores, loader.clone(), shutdown.clone()));
        let coupon_changes = Arc::new(CouponChanges::new(
            stores,
            coupons.clone(),
            loader.clone(),
            postponed.clone(),
            shutdown.clone(),
        ));
        let order_moves = OrderMoves::new(stores.pool.clone(), shutdown.clone());
        Ok(Self { metrics, postponed, epoch, loss, loader, coupons, coupon_changes, order_moves })
    }
}

/// Raises the number of lanes to the setting. Returns the number that holds now.
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
