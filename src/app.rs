//! The assembled service: one field for each capability.

use std::sync::Arc;
use std::time::Duration;

use redisson_locks::ReentrantLocks;
use uuid::Uuid;

use crate::base::clock::Clock;
use crate::base::config::{Config, Role};
use crate::base::gauges::Gauge;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::Metrics;
use crate::kit::locks::reentrant_locks;
use crate::sale::Stores;
use crate::sale::archive::Archive;
use crate::sale::audit::Audit;
use crate::sale::board::Board;
use crate::sale::board::presence::{Presence, Word};
use crate::sale::board::sources::Sources;
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
use crate::sale::durability::Durability;
use crate::sale::fence::{self, LaneStates};
use crate::sale::installation;
use crate::sale::live::LiveSales;
use crate::sale::log::backlog::Backlog;
use crate::sale::loss::LossAlarm;
use crate::sale::operations::Operations;
use crate::sale::order::closed::ClosedOrders;
use crate::sale::order::discard::DeadLetters;
use crate::sale::order::expiry::Expiry;
use crate::sale::order::give_back::pass::StockReturns;
use crate::sale::order::moves::OrderMoves;
use crate::sale::order::waiters::OrderWaiters;
use crate::sale::order::write::Orders;
use crate::sale::pass::Pass;
use crate::sale::payment::Payments;
use crate::sale::payment::gateway::Checkout;
use crate::sale::postponed::Postponed;
use crate::sale::receipts::book::ReceiptBook;
use crate::sale::receipts::hand_in::HandIn;
use crate::sale::reconcile::gauges::Numbers;
use crate::sale::reconcile::pass::Reconciler;
use crate::sale::recovery::apart;
use crate::sale::recovery::keeper::{self, Keeper};
use crate::sale::recovery::retry::Retries;
use crate::sale::retention::Retention;
use crate::sale::storm::Storms;
use crate::sale::trace::Traces;
#[cfg(feature = "otlp")]
use crate::sale::trace::otlp::open as outbox;
#[cfg(not(feature = "otlp"))]
use crate::sale::trace::outbox::Outbox;

/// The service. Both doors hold it by `Arc`.
pub struct App {
    /// Takes claims: the path that has to be fast.
    pub claims: Claims,
    /// Tells the outcome of claims.
    pub claim_statuses: ClaimStatuses,
    /// Follows single claims: the API and the worker note what they did.
    pub traces: Arc<Traces>,
    /// Live states of sales.
    pub live: LiveSales,
    /// All that an operator looks at.
    pub board: Board,
    /// Tells the board of all processes the counts of this one.
    pub presence: Presence,
    /// Storms of a demo.
    pub storms: Storms,
    /// Creates and reads coupons.
    pub coupons: Arc<Coupons>,
    /// Changes coupons.
    pub coupon_changes: Arc<CouponChanges>,
    /// Loads sales into Redis.
    pub loader: Arc<Loader>,
    /// Level at which claims are confirmed.
    pub durability: Arc<Durability>,
    /// Epochs of the lanes, and whether they are open.
    pub lanes: Arc<LaneStates>,
    /// Closes and recovers lanes.
    pub keeper: Keeper,
    /// Claims that this process has promised.
    pub receipts: Arc<ReceiptBook>,
    /// Hands them in.
    pub hand_in: HandIn,
    /// Removes sales that are over from Redis.
    pub archive: Archive,
    /// Memories of sales.
    pub memories: Memories,
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
    /// Tries dead letters again.
    pub retries: Retries,
    /// Returns units to stock.
    pub stock_returns: StockReturns,
    /// Changes that the staff has made.
    pub audit: Audit,
    /// What waits for a person.
    pub operations: Operations,
    /// Deletes old records.
    pub retention: Retention,
    /// Items that passes have postponed.
    pub postponed: Postponed,
    /// Buyers' locks.
    pub locks: ReentrantLocks,
    /// Requests that wait for their order.
    pub order_waiters: OrderWaiters,
    /// Accepted claims that wait to be written, and the bound on them.
    pub backlog: Arc<Backlog>,
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

/// Starts the tasks that follow the master of Redis, watch the backlog, listen for units that come back, and keep the
/// service's own memory in bounds.
pub fn start_housekeeping(app: &Arc<App>) {
    let Stores { redis, keys, .. } = &app.stores;
    redis.follow_master(&app.shutdown);
    listener::listen(redis.clone(), keys, app.memories.clone(), &app.shutdown);
    repeat(app, limits::BACKLOG_PERIOD, |app| async move { app.backlog_pass().await });
    repeat(app, keeper::TICK, |app| async move { app.keeper.tick().await });
    repeat(app, keeper::TICK, |app| async move { app.receipts_pass().await });
    repeat(app, limits::BOARD_PERIOD, |app| async move { app.presence_pass().await });
    repeat(app, limits::DURABILITY_LOOK_PERIOD, |app| async move { app.durability_pass().await });
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

    /// Tells the board the counts of this process. While Redis doesn't answer, the board says that the process is silent.
    pub async fn presence_pass(&self) {
        if let Err(error) = self.presence.pass().await {
            tracing::debug!(%error, "the counts of this process can't be told");
        }
    }

    /// Hands in what this process has promised in lanes that were closed.
    pub async fn receipts_pass(&self) {
        if let Err(error) = self.hand_in.tick().await {
            tracing::debug!(%error, "the receipts can't be handed in yet");
        }
        self.metrics.receipts_dropped.absolute(self.receipts.dropped());
    }

    /// Hands in the last receipts of a process that has finished its requests, and tells the others that it ends: no
    /// recovery waits for it, and another process keeps the lanes.
    pub async fn leave(&self) {
        let left = async {
            self.receipts_pass().await;
            let (_, _, _) =
                tokio::join!(self.keeper.give_up(), self.hand_in.leave(), self.presence.leave());
        };
        if tokio::time::timeout(limits::LEAVE_MAX, left).await.is_err() {
            tracing::debug!(
                "the process couldn't say that it ends; its lease runs out in a moment"
            );
        }
    }

    /// Counts a run of a pass that broke off.
    pub fn count_failure(&self, pass: Pass) {
        self.metrics.count_pass_failures(pass.name(), 1);
    }

    /// Looks at what Redis keeps, and tells by gauges what /readyz tells in words.
    pub async fn durability_pass(&self) {
        let is_there = self.durability.pass().await.is_ok();
        let (_, not_kept) = self.durability.report();
        let takes_claims =
            is_there && not_kept.is_none() && self.durability.server_fault().is_none();
        let apart_ms = self.durability.clock_ahead().num_milliseconds();
        let gauges = vec![
            Gauge::plain("flash_sale_redis_takes_claims", if takes_claims { 1.0 } else { 0.0 }),
            Gauge::plain("flash_sale_redis_clock_ahead_seconds", apart_ms as f64 / 1_000.0),
        ];
        self.metrics.gauges.replace("durability", gauges);
    }

    /// Folds the samples of histograms, learns of new lanes, and forgets users without a claim in the last time.
    pub async fn housekeeping_pass(&self) {
        self.metrics.fold_samples();
        self.readiness.learn_lanes().await;
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
        let (backlog, lane_states, durability) = looked_up(config, &stores, &clock).await?;
        let Base { metrics, postponed, loss, loader, coupons, coupon_changes, order_moves } =
            Base::new(config, &stores, &lane_states, &shutdown)?;
        let ClaimParts { orders, locks, memories, traces } =
            ClaimParts::new(config, &stores, &metrics, (&clock, &shutdown));
        let Promises { receipts, hand_in, keeper } =
            Promises::new(config, &stores, &lane_states, &orders, (&metrics, &postponed));
        let told = (&durability, &receipts, &memories);
        let script = claim_script(config, &stores, &backlog, &lane_states, told, &shutdown);
        let regular = regular_claims(config, &stores, &locks, &orders);
        let asked = (loader.clone(), lane_states.clone(), loss);
        let live = live_sales(config, &stores, &coupons, &shutdown);
        let looked_at = (&backlog, &lane_states, &durability);
        let sale = (&coupons, &coupon_changes);
        let sources = sources(&stores, &coupons, looked_at, &clock);
        Ok(Arc::new(Self {
            claims: Claims::new(memories.clone(), script, asked, regular, orders.clone()),
            board: Board::new(sources, live.places(), shutdown.clone()),
            presence: presence(config, &stores, (&backlog, &metrics), &clock, &shutdown),
            live,
            storms: storms(&stores, sale, (&backlog, &traces), &shutdown),
            claim_statuses: ClaimStatuses::new(&stores, &orders, &loader, &lane_states),
            traces,
            payments: payments(config, &stores, &order_moves, &postponed),
            expiry: Expiry::new(order_moves.clone(), postponed.clone()),
            dead_letters: DeadLetters::new(stores.pool.clone(), order_moves.clone()),
            retries: Retries::new(&stores, orders.clone(), lane_states.clone()),
            stock_returns: stock_returns(&stores, &loader, &lane_states, &postponed),
            coupons,
            archive: archive(config, &stores, &coupon_changes, &postponed, &shutdown),
            coupon_changes,
            loader,
            lanes: lane_states.clone(),
            durability: durability.clone(),
            keeper,
            hand_in,
            receipts,
            memories,
            order_waiters: OrderWaiters::new(orders.clone(), &metrics, shutdown.clone()),
            orders,
            order_moves,
            locks,
            readiness: Readiness::new(&stores, &backlog, (&lane_states, &durability), &shutdown),
            numbers: Numbers::new(&stores, backlog.clone(), metrics.clone(), postponed.clone()),
            backlog,
            audit: Audit::new(stores.pool.clone()),
            operations: Operations::new(stores.pool.clone()),
            retention: Retention::new(stores.pool.clone(), metrics.clone(), config),
            postponed,
            reconciler: Reconciler::new(stores.clone(), metrics.clone(), shutdown.clone()),
            clock,
            metrics,
            shutdown,
            stores,
        }))
    }
}

/// Facts in both stores about order ids, lanes and the durability of claims.
async fn looked_up(
    config: &Config,
    stores: &Stores,
    clock: &Clock,
) -> anyhow::Result<(Arc<Backlog>, Arc<LaneStates>, Arc<Durability>)> {
    let backlog = empty_backlog(config, stores, raise_lanes(config, stores).await?);
    apart::examine_at_start(stores).await?;
    let lane_states = fence::states_of(stores).await?;
    let durability = Durability::looked_up(&stores.redis, config.durability, clock).await?;
    Ok((backlog, lane_states, Arc::new(durability)))
}

/// Parts that claims and their orders are made with.
struct ClaimParts {
    orders: Orders,
    locks: ReentrantLocks,
    memories: Memories,
    traces: Arc<Traces>,
}

impl ClaimParts {
    fn new(
        config: &Config,
        stores: &Stores,
        metrics: &Arc<Metrics>,
        (clock, shutdown): (&Clock, &Shutdown),
    ) -> Self {
        let pool = stores.pool.clone();
        Self {
            traces: Arc::new(Traces::new(pool.clone(), outbox(config, metrics, clock, shutdown))),
            orders: Orders::new(pool, config.batch_timeout(), config.payment_window()),
            locks: buyers_locks(config, stores, shutdown),
            memories: empty_memories(config, stores, shutdown),
        }
    }
}

/// No claim is traced by a build that can't send traces: `Config::validate` refuses the setting.
#[cfg(not(feature = "otlp"))]
fn outbox(_: &Config, _: &Arc<Metrics>, _: &Clock, _: &Shutdown) -> Option<Outbox> {
    None
}

fn regular_claims(
    config: &Config,
    stores: &Stores,
    locks: &ReentrantLocks,
    orders: &Orders,
) -> RegularClaims {
    let closed = ClosedOrders { most: config.closed_orders_max };
    RegularClaims::new(stores, locks.clone(), orders.clone(), closed)
}

fn claim_script(
    config: &Config,
    stores: &Stores,
    backlog: &Arc<Backlog>,
    lanes: &Arc<LaneStates>,
    (durability, receipts, memories): (&Arc<Durability>, &Arc<ReceiptBook>, &Memories),
    shutdown: &Shutdown,
) -> ClaimScript {
    let connected = (stores.redis.clone(), stores.keys.clone());
    let bounds = Bounds::of(config, backlog.clone());
    let told = (durability.clone(), receipts.clone(), memories.clone());
    ClaimScript::new(connected, bounds, lanes.clone(), told, shutdown.clone())
}

fn stock_returns(
    stores: &Stores,
    loader: &Arc<Loader>,
    lanes: &Arc<LaneStates>,
    postponed: &Postponed,
) -> StockReturns {
    StockReturns::new(stores, loader.clone(), lanes.clone(), postponed.clone())
}

/// Capabilities that the board reads.
fn sources(
    stores: &Stores,
    coupons: &Arc<Coupons>,
    (backlog, lanes, durability): (&Arc<Backlog>, &Arc<LaneStates>, &Arc<Durability>),
    clock: &Clock,
) -> Sources {
    Sources {
        stores: stores.clone(),
        coupons: coupons.clone(),
        backlog: backlog.clone(),
        lanes: lanes.clone(),
        durability: durability.clone(),
        clock: clock.clone(),
    }
}

fn live_sales(
    config: &Config,
    stores: &Stores,
    coupons: &Arc<Coupons>,
    shutdown: &Shutdown,
) -> LiveSales {
    let window = config.payment_window();
    LiveSales::new(stores, coupons.clone(), config.watchers_max(), window, shutdown.clone())
}

fn presence(
    config: &Config,
    stores: &Stores,
    counted: (&Arc<Backlog>, &Arc<Metrics>),
    clock: &Clock,
    shutdown: &Shutdown,
) -> Presence {
    let name = |role: &Role| match role {
        Role::Api => "api".to_owned(),
        Role::Worker => "worker".to_owned(),
    };
    let about = Word {
        roles: config.roles.iter().map(name).collect(),
        checkout: config.has_role(Role::Api).then(|| Checkout::of(config)),
        durability: config.durability.map(|level| level.to_string()),
        ..Word::default()
    };
    Presence::new(stores, about, counted, clock.clone(), shutdown.clone())
}

fn payments(
    config: &Config,
    stores: &Stores,
    moves: &OrderMoves,
    postponed: &Postponed,
) -> Payments {
    Payments::new(stores.pool.clone(), moves.clone(), postponed.clone(), config)
}

fn storms(
    stores: &Stores,
    (coupons, changes): (&Arc<Coupons>, &Arc<CouponChanges>),
    (backlog, traces): (&Arc<Backlog>, &Arc<Traces>),
    shutdown: &Shutdown,
) -> Storms {
    let sale = (coupons.clone(), changes.clone());
    let asked = (backlog.clone(), traces.clone());
    Storms::new(stores, sale, asked, shutdown.clone())
}

fn archive(
    config: &Config,
    stores: &Stores,
    changes: &Arc<CouponChanges>,
    postponed: &Postponed,
    shutdown: &Shutdown,
) -> Archive {
    let after = config.archive_after();
    Archive::new(stores, changes.clone(), postponed.clone(), after, shutdown.clone())
}

fn empty_backlog(config: &Config, stores: &Stores, lanes: i32) -> Arc<Backlog> {
    let Stores { redis, keys, .. } = stores.clone();
    Arc::new(Backlog::new(redis, keys, lanes, config.backlog_orders_max))
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

/// Parts that keep promises when Redis doesn't.
struct Promises {
    receipts: Arc<ReceiptBook>,
    hand_in: HandIn,
    keeper: Keeper,
}

impl Promises {
    fn new(
        config: &Config,
        stores: &Stores,
        lanes: &Arc<LaneStates>,
        orders: &Orders,
        (metrics, postponed): (&Arc<Metrics>, &Postponed),
    ) -> Self {
        let kept = usize::try_from(config.backlog_orders_max).unwrap_or(usize::MAX);
        let receipts = Arc::new(ReceiptBook::new(kept.max(limits::RECEIPTS_MIN)));
        // Name of this process among those of the installation.
        let process = Uuid::new_v4().simple().to_string();
        tracing::info!(process, "recoveries report this process under its name");
        let hand_in = HandIn::new(stores, lanes.clone(), receipts.clone(), process.clone());
        let measured = (metrics.clone(), postponed.clone(), config.unpaid_orders_max);
        let keeper = Keeper::new(stores, lanes.clone(), orders.clone(), measured, process);
        Self { receipts, hand_in, keeper }
    }
}

/// Parts on which the other capabilities stand.
struct Base {
    metrics: Arc<Metrics>,
    postponed: Postponed,
    loss: Arc<LossAlarm>,
    loader: Arc<Loader>,
    coupons: Arc<Coupons>,
    coupon_changes: Arc<CouponChanges>,
    order_moves: OrderMoves,
}

impl Base {
    fn new(
        config: &Config,
        stores: &Stores,
        lanes: &Arc<LaneStates>,
        shutdown: &Shutdown,
    ) -> anyhow::Result<Self> {
        let passes = Pass::ALL.into_iter().map(Pass::name);
        let metrics = Arc::new(Metrics::new(ClaimOutcome::codes(), passes)?);
        let postponed = Postponed::new(stores.pool.clone(), metrics.clone());
        let loss = Arc::new(LossAlarm::new(metrics.clone(), lanes.clone()));
        let loader = Arc::new(Loader::new(stores, lanes.clone(), loss.clone(), postponed.clone()));
        let coupons = Arc::new(Coupons::new(stores, loader.clone(), shutdown.clone()));
        let coupon_changes = Arc::new(CouponChanges::new(
            stores,
            coupons.clone(),
            loader.clone(),
            lanes.clone(),
            postponed.clone(),
            shutdown.clone(),
        ));
        let closed = ClosedOrders { most: config.closed_orders_max };
        let order_moves = OrderMoves::new(stores.pool.clone(), shutdown.clone(), closed);
        Ok(Self { metrics, postponed, loss, loader, coupons, coupon_changes, order_moves })
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
