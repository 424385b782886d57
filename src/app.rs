//! The assembled service: one field for each capability.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::RedisResult;
use redisson_locks::ReentrantLocks;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::base::clock::Clock;
use crate::base::config::{Config, Role};
use crate::base::durability::Level;
use crate::base::gauges::Gauge;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::Metrics;
use crate::claim::calls::{Bounds, ClaimScript};
use crate::claim::claims::Claims;
use crate::claim::memory::Memories;
use crate::claim::memory::listener;
use crate::claim::outcome::ClaimOutcome;
use crate::claim::readiness::Readiness;
use crate::claim::regular::RegularClaims;
use crate::claim::status::ClaimStatuses;
use crate::claim::trace::Traces;
use crate::coupon::changes::CouponChanges;
use crate::coupon::create::Coupons;
use crate::coupon::live::LiveSales;
use crate::coupon::load::Loader;
use crate::demo::board::presence::{Presence, Word};
use crate::demo::board::{Board, Sources};
use crate::demo::storm::Storms;
use crate::events::feed::Feed;
use crate::events::webhooks::Webhooks;
use crate::fence::loss::LossAlarm;
use crate::fence::unwritten::book::UnwrittenBook;
use crate::fence::unwritten::hand_in::HandIn;
use crate::fence::{self, LaneStates};
use crate::kit::public_hosts::PublicHosts;
use crate::log::backlog::Backlog;
use crate::operator::archive::Archive;
use crate::operator::operations::Operations;
use crate::operator::retention::Retention;
use crate::order::closed::ClosedOrders;
use crate::order::discard::DeadLetters;
use crate::order::expiry::Expiry;
use crate::order::moves::OrderMoves;
use crate::order::release::job::StockReturns;
use crate::order::waiters::OrderWaiters;
use crate::order::write::Orders;
use crate::payment::Payments;
use crate::payment::gateway::Checkout;
use crate::recovery::apart;
use crate::recovery::leader::{self, Leader};
use crate::recovery::reconcile::gauges::Numbers;
use crate::recovery::reconcile::job::Reconciler;
use crate::recovery::retry::Retries;
use crate::store::Stores;
use crate::store::audit::Audit;
use crate::store::durability::Durability;
use crate::store::fleet::Fleet;
use crate::store::installation;
use crate::store::job::Job;
use crate::store::locks::reentrant_locks;
use crate::store::postponed::Postponed;

/// The service. HTTP and the worker share it by `Arc`.
pub struct App {
    /// Takes claims: the path that has to be fast.
    pub claims: Claims,
    /// Tells the outcome of claims.
    pub claim_statuses: ClaimStatuses,
    /// Steps of single claims, as the API and the worker have noted them.
    pub traces: Arc<Traces>,
    pub live: LiveSales,
    /// Everything that an operator watches.
    pub board: Board,
    /// Reports the counts of this process to the boards of all processes.
    pub presence: Presence,
    pub storms: Storms,
    /// Creates and reads coupons.
    pub coupons: Arc<Coupons>,
    pub coupon_changes: Arc<CouponChanges>,
    /// Loads sales into Redis.
    pub loader: Arc<Loader>,
    /// Whether each Redis can keep the level at which claims are confirmed.
    pub durability: Fleet<Arc<Durability>>,
    /// Epochs of the lanes, and whether they are open.
    pub lanes: Arc<LaneStates>,
    /// Close and recover lanes.
    pub leaders: Fleet<Leader>,
    /// Claims that this process has accepted and not yet seen in Postgres.
    pub unwritten: Arc<UnwrittenBook>,
    /// Hands in these unwritten claims when a lane is closed.
    pub hand_in: HandIn,
    /// Removes sales that are over from Redis.
    pub archive: Archive,
    /// What this process remembers of sales: which are sold out, and the orders of their buyers.
    pub memories: Fleet<Memories>,
    /// Reads orders, and writes those that the log brings.
    pub orders: Orders,
    /// Cancels and redeems orders.
    pub order_moves: OrderMoves,
    /// Takes payments and refunds them.
    pub payments: Payments,
    pub expiry: Expiry,
    /// Lists and discards dead letters.
    pub dead_letters: DeadLetters,
    /// Retries dead letters.
    pub retries: Retries,
    /// Returns units to stock.
    pub stock_returns: StockReturns,
    pub audit: Audit,
    /// Events for other systems.
    pub feed: Feed,
    /// Endpoints that they are sent to.
    pub webhooks: Arc<Webhooks>,
    /// What waits for a person.
    pub operations: Operations,
    /// Deletes old records.
    pub retention: Retention,
    pub postponed: Postponed,
    /// Buyers' locks.
    pub locks: Fleet<ReentrantLocks>,
    /// Requests that wait for their order.
    pub order_waiters: OrderWaiters,
    /// Accepted claims that wait to be written, and the bound on them.
    pub backlog: Arc<Backlog>,
    /// Whether claims can be taken.
    pub readiness: Readiness,
    /// Reads the operator's numbers from both stores.
    pub numbers: Numbers,
    /// Compares the stores, and keeps the record.
    pub reconciler: Reconciler,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    /// Stops the service, and owns its tasks.
    pub shutdown: Shutdown,
    /// The stores, for the worker; HTTP doesn't use them.
    pub stores: Stores,
}

/// Starts the tasks that each process has, whatever its roles. They follow the master of each Redis, lead the lanes,
/// hand in unwritten claims, watch the backlog and the durability, report to the board, listen for units that come
/// back, and keep the memory of the process in bounds.
pub fn start_housekeeping(app: &Arc<App>) {
    let Stores { fleet, keys, .. } = &app.stores;
    for (server, redis) in fleet.each().enumerate() {
        redis.follow_master(&app.shutdown);
        let memories = app.memories.at(server).clone();
        listener::listen(redis.clone(), keys, memories, &app.shutdown);
        let keep = move |app: Arc<App>| async move { app.leaders.at(server).tick().await };
        repeat(app, leader::TICK, keep);
    }
    repeat(app, limits::BACKLOG_PERIOD, |app| async move { app.backlog_job().await });
    repeat(app, leader::TICK, |app| async move { app.hand_in_job().await });
    repeat(app, limits::UNWRITTEN_CHECK_PERIOD, |app| async move { app.unwritten_check().await });
    repeat(app, limits::BOARD_PERIOD, |app| async move { app.presence_job().await });
    repeat(app, limits::DURABILITY_CHECK_PERIOD, |app| async move { app.durability_job().await });
    repeat(app, limits::HOUSEKEEPING_PERIOD, |app| async move { app.housekeeping_job().await });
}

/// Runs a job again and again, `period` after its last run, until the service stops. A run that hangs in a store then
/// is given up after [`limits::DOOR_DRAIN_MAX`], as if the process had died in it.
pub fn repeat<F>(
    app: &Arc<App>,
    period: Duration,
    job: impl Fn(Arc<App>) -> F + Send + 'static,
) -> JoinHandle<()>
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
                () = job(app.clone()) => {}
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(period) => {}
            }
        }
    })
}

impl App {
    /// Counts the accepted claims that wait to be written. While Redis doesn't answer, the last count holds.
    pub async fn backlog_job(&self) {
        if let Ok(orders) = self.backlog.check().await {
            self.metrics.backlog.set(orders as f64);
        }
    }

    /// Reports the counts of this process to the board. While Redis doesn't answer, the board shows the process as
    /// silent.
    pub async fn presence_job(&self) {
        if let Err(error) = self.presence.run_once().await {
            tracing::debug!(%error, "the counts of this process can't be told");
        }
    }

    /// Hands in the unwritten claims of this process for lanes that were closed, and drops those that are committed.
    pub async fn unwritten_job(&self) {
        self.hand_in_job().await;
        self.unwritten_check().await;
    }

    /// The first part, which needs no Redis.
    async fn hand_in_job(&self) {
        if let Err(error) = self.hand_in.tick().await {
            tracing::debug!(%error, "the unwritten claims can't be handed in yet");
        }
    }

    async fn unwritten_check(&self) {
        if let Err(error) = self.hand_in.check().await {
            tracing::debug!(%error, "it can't be seen which unwritten claims are committed");
        }
        self.metrics.unwritten_claims_dropped.absolute(self.unwritten.dropped());
    }

    /// Hands in the last unwritten claims of a process that has finished its requests, and tells the others that it
    /// ends. So no recovery waits for it, and another process becomes the leader at once.
    pub async fn leave(&self) {
        let left = async {
            self.hand_in_job().await;
            let given_up = join_all(self.leaders.each().map(Leader::give_up));
            let (_, _, _) = tokio::join!(given_up, self.hand_in.leave(), self.presence.leave());
        };
        if tokio::time::timeout(limits::LEAVE_MAX, left).await.is_err() {
            tracing::debug!(
                "the process couldn't say that it ends; its lease runs out in a moment"
            );
        }
    }

    /// Counts a run of a job that has failed.
    pub fn count_failure(&self, job: Job) {
        self.metrics.count_job_failures(job.name(), 1);
    }

    /// Checks what each Redis can keep, and sets gauges to what /readyz says in words.
    pub async fn durability_job(&self) {
        let checks = join_all(self.durability.each().map(|of_server| of_server.run_once())).await;
        let is_good = |(of_server, checked): (&Arc<Durability>, &RedisResult<()>)| {
            checked.is_ok() && of_server.report().1.is_none() && of_server.server_fault().is_none()
        };
        let takes_claims = self.durability.each().zip(&checks).all(is_good);
        let apart_ms = self.durability.each().map(|of_server| of_server.clock_ahead());
        let apart_ms = apart_ms.map(|apart| apart.num_milliseconds()).max_by_key(|ms| ms.abs());
        let apart_ms = apart_ms.unwrap_or_default();
        let gauges = vec![
            Gauge::plain("flash_sale_redis_takes_claims", if takes_claims { 1.0 } else { 0.0 }),
            Gauge::plain("flash_sale_redis_clock_ahead_seconds", apart_ms as f64 / 1_000.0),
        ];
        self.metrics.gauges.replace("durability", gauges);
    }

    /// Folds the samples of histograms, learns of new lanes, and forgets sales that no claim has asked about for a
    /// while.
    pub async fn housekeeping_job(&self) {
        self.metrics.fold_samples();
        self.readiness.learn_lanes().await;
        self.memories.each().for_each(Memories::forget_idle);
    }

    /// Puts the service together over these stores.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer or isn't migrated: only Postgres has the lanes and their epochs.
    pub async fn assemble(
        config: &Config,
        stores: Stores,
        clock: Clock,
        shutdown: Shutdown,
    ) -> anyhow::Result<Arc<Self>> {
        let metrics =
            Arc::new(Metrics::new(ClaimOutcome::codes(), Job::ALL.into_iter().map(Job::name))?);
        let lanes_now = raise_lanes(config, &stores).await?;
        let stores = installation::spread(stores).await?;
        let Stores { pool, fleet, keys } = stores.clone();
        let backlog = Backlog::new(fleet.clone(), keys, lanes_now, config.backlog_orders_max);
        apart::examine_at_start(&stores).await?;
        let lanes = fence::states_of(&stores).await?;
        let durability = Durability::looked_up(&fleet, config.durability, &clock).await?;
        let postponed = Postponed::new(&stores, metrics.clone());
        let loss = Arc::new(LossAlarm::new(metrics.clone(), lanes.clone()));
        let loader = Loader::new(&stores, lanes.clone(), loss.clone(), postponed.clone());
        let loader = Arc::new(loader);
        let coupons = Arc::new(Coupons::new(&stores, loader.clone(), shutdown.clone()));
        let coupon_changes = Arc::new(CouponChanges::new(
            &stores,
            coupons.clone(),
            loader.clone(),
            lanes.clone(),
            postponed.clone(),
            shutdown.clone(),
        ));
        let closed = ClosedOrders { most: config.closed_orders_max };
        // At this level only its row confirms a claim, so orders that the script has named aren't remembered.
        let accepted_memory = match durability.first().level() {
            Level::Postgres => Duration::ZERO,
            _ => config.sold_out_memory,
        };
        let base = Base {
            config,
            orders: Orders::new(
                pool.clone(),
                config.stores.database_timeout(),
                config.payment_window(),
                config.stores.events,
            ),
            order_moves: OrderMoves::new(pool, shutdown.clone(), closed),
            memories: fleet.map(|(_, redis)| {
                let times = (config.sold_out_memory, accepted_memory);
                Memories::new(redis.clone(), stores.keys.clone(), times, shutdown.clone())
            }),
            stores,
            clock,
            shutdown,
            metrics,
            backlog: Arc::new(backlog),
            lanes,
            durability,
            postponed,
            loss,
            loader,
            coupons,
            coupon_changes,
        };
        Ok(Arc::new(base.app()))
    }
}

/// Parts that the other capabilities are built on.
struct Base<'a> {
    config: &'a Config,
    stores: Stores,
    clock: Clock,
    shutdown: Shutdown,
    metrics: Arc<Metrics>,
    backlog: Arc<Backlog>,
    lanes: Arc<LaneStates>,
    durability: Fleet<Arc<Durability>>,
    postponed: Postponed,
    loss: Arc<LossAlarm>,
    loader: Arc<Loader>,
    coupons: Arc<Coupons>,
    coupon_changes: Arc<CouponChanges>,
    orders: Orders,
    order_moves: OrderMoves,
    memories: Fleet<Memories>,
}

impl Base<'_> {
    fn app(self) -> App {
        let Self { config, stores, shutdown, .. } = &self;
        let (pool, lanes, postponed) = (&stores.pool, &self.lanes, &self.postponed);
        let lease_max = Some(limits::LOCK_LEASE_MAX);
        let locks = stores
            .fleet
            .map(|(_, redis)| reentrant_locks(redis, limits::LOCK_LEASE, lease_max, shutdown));
        let kept = usize::try_from(config.backlog_orders_max).unwrap_or(usize::MAX);
        let unwritten = Arc::new(UnwrittenBook::new(kept.max(limits::UNWRITTEN_MIN)));
        // Name of this process among those of the installation.
        let process = Uuid::new_v4().simple().to_string();
        tracing::info!(process, "recoveries report this process under its name");
        let feed = Feed::new(pool.clone(), shutdown.clone(), config.stores.events);
        let (window, watchers) = (config.payment_window(), config.watchers_max());
        let live = LiveSales::new(stores, self.coupons.clone(), watchers, window, shutdown.clone());
        App {
            claims: self.claims(&locks, &unwritten),
            claim_statuses: ClaimStatuses::new(stores, &self.orders, &self.loader, lanes),
            traces: Arc::new(Traces::new(pool.clone())),
            board: Board::new(self.sources(), live.places(), shutdown.clone()),
            live,
            presence: self.presence(),
            storms: Storms::new(stores, self.backlog.clone(), shutdown.clone()),
            leaders: stores.fleet.map(|(server, _)| self.leader(server)),
            hand_in: HandIn::new(stores, lanes.clone(), unwritten.clone(), process),
            unwritten,
            archive: self.archive(),
            payments: Payments::new(
                pool.clone(),
                self.order_moves.clone(),
                postponed.clone(),
                config,
            ),
            expiry: Expiry::new(self.order_moves.clone(), postponed.clone()),
            dead_letters: DeadLetters::new(pool.clone(), self.order_moves.clone()),
            retries: Retries::new(stores, self.orders.clone(), lanes.clone()),
            stock_returns: StockReturns::new(
                stores,
                self.loader.clone(),
                lanes.clone(),
                postponed.clone(),
            ),
            audit: Audit::new(pool.clone()),
            webhooks: self.webhooks(&feed),
            feed,
            operations: Operations::new(pool.clone()),
            retention: Retention::new(pool.clone(), self.metrics.clone(), config),
            locks,
            order_waiters: OrderWaiters::new(self.orders.clone(), &self.metrics, shutdown.clone()),
            readiness: Readiness::new(stores, &self.backlog, (lanes, &self.durability), shutdown),
            numbers: Numbers::new(
                stores,
                self.backlog.clone(),
                self.metrics.clone(),
                postponed.clone(),
            ),
            reconciler: Reconciler::new(stores.clone(), self.metrics.clone(), shutdown.clone()),
            coupons: self.coupons,
            coupon_changes: self.coupon_changes,
            loader: self.loader,
            durability: self.durability,
            lanes: self.lanes,
            memories: self.memories,
            orders: self.orders,
            order_moves: self.order_moves,
            postponed: self.postponed,
            backlog: self.backlog,
            clock: self.clock,
            metrics: self.metrics,
            shutdown: self.shutdown,
            stores: self.stores,
        }
    }

    fn webhooks(&self, feed: &Feed) -> Arc<Webhooks> {
        let hosts = PublicHosts::new(&self.config.webhooks_allow);
        let (pool, clock) = (self.stores.pool.clone(), self.clock.clone());
        Webhooks::new(pool, feed.clone(), hosts, clock, self.shutdown.clone())
    }

    fn leader(&self, server: usize) -> Leader {
        let (metrics, postponed) = (self.metrics.clone(), self.postponed.clone());
        let measured = (metrics, postponed, self.config.unpaid_orders_max);
        let of = (&self.stores, server);
        Leader::new(of, self.lanes.clone(), self.orders.clone(), measured)
    }

    fn archive(&self) -> Archive {
        let (changes, postponed) = (self.coupon_changes.clone(), self.postponed.clone());
        let after = self.config.archive_after();
        Archive::new(&self.stores, changes, postponed, after, self.shutdown.clone())
    }

    fn claims(&self, locks: &Fleet<ReentrantLocks>, unwritten: &Arc<UnwrittenBook>) -> Claims {
        let Self { config, stores, lanes, orders, memories, .. } = self;
        let script = stores.fleet.map(|(server, redis)| {
            let (durability, memories) = (self.durability.at(server), memories.at(server));
            ClaimScript::new(
                (redis.clone(), stores.keys.clone()),
                Bounds::of(config, self.backlog.clone()),
                lanes.clone(),
                (durability.clone(), unwritten.clone(), memories.clone()),
                self.shutdown.clone(),
            )
        });
        let closed = ClosedOrders { most: config.closed_orders_max };
        let regular = RegularClaims::new(stores, locks.clone(), orders.clone(), closed);
        let asked = (self.loader.clone(), lanes.clone(), self.loss.clone());
        Claims::new(memories.clone(), script, asked, regular, orders.clone())
    }

    /// Capabilities that the board reads.
    fn sources(&self) -> Sources {
        Sources {
            stores: self.stores.clone(),
            coupons: self.coupons.clone(),
            backlog: self.backlog.clone(),
            lanes: self.lanes.clone(),
            durability: self.durability.clone(),
            clock: self.clock.clone(),
        }
    }

    fn presence(&self) -> Presence {
        let config = self.config;
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
        let (metrics, clock) = (self.metrics.clone(), self.clock.clone());
        Presence::new(&self.stores, about, metrics, clock, self.shutdown.clone())
    }
}

/// Raises the number of lanes to the setting, and to at least one for each server. Returns the number that holds now.
async fn raise_lanes(config: &Config, stores: &Stores) -> sqlx::Result<i32> {
    let asked = config.lanes.unwrap_or(1).max(stores.fleet.lanes_min());
    let lanes = installation::raise_lanes(&stores.pool, asked).await?;
    if config.lanes.is_some() && lanes > asked {
        tracing::warn!(
            lanes,
            "there are more lanes than --lanes asks for, and coupons live in them: their number only grows"
        );
    }
    Ok(lanes)
}
