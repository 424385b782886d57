//! The leader checks the lanes of a server, closes those that differ from their approved state, and recovers them.
//!
//! Each process stands for election by an advisory lock of a Postgres session. Two leaders, or none for a moment, cost
//! time and do no harm, because each closing and each recovery raises the epoch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use sqlx::PgPool;
use tokio::time::Instant;

use super::apart;
use super::lane::{LastSeen, Recoverer};
use super::records::{self, Recovery, RecoveryFilter};
use crate::base::limits;
use crate::base::telemetry::{LogThrottle, Metrics};
use crate::coupon::buyers;
use crate::coupon::buyers::count::count_sale;
use crate::coupon::stock;
use crate::fence;
use crate::fence::in_redis::read_lanes;
use crate::fence::scripts::FenceScripts;
use crate::fence::table::{self, StoredLane};
use crate::fence::unwritten;
use crate::fence::unwritten::book::UnwrittenClaim;
use crate::fence::{ClosureReason, LaneStates};
use crate::order::write::Orders;
use crate::store::audit::Actor;
use crate::store::ids::{CouponId, Lane, RecoveryId};
use crate::store::job::Job;
use crate::store::postgres::session_lock::LockSession;
use crate::store::postponed::Postponed;
use crate::store::redis::is_data_error;
use crate::store::{Failure, Stores, installation};

/// First key of the leader's advisory lock: "lead" in ASCII. The second key is the number of the server.
const LEADS: i32 = 0x6c65_6164;

/// This process's candidate for leader. Without the lock it only checks sales that its own claims have found lost.
pub struct Leader {
    stores: Stores,
    server: usize,
    lanes: Arc<LaneStates>,
    scripts: Arc<FenceScripts>,
    recoverer: Recoverer,
    postponed: Postponed,
    metrics: Arc<Metrics>,
    /// Locked during a run: a second run in this process would close lanes that the first is opening.
    notes: tokio::sync::Mutex<Notes>,
    throttle: Mutex<LogThrottle>,
}

/// What one run leaves to the next.
#[derive(Default)]
struct Notes {
    /// The session that holds the leader's lock, or tries to get it.
    session: Option<LockSession>,
    leads: bool,
    /// What the last check saw of each lane.
    last_seen: HashMap<Lane, LastSeen>,
    /// When a lane's recovery last failed.
    failed_at: HashMap<Lane, Instant>,
    /// Time of the last check, and whether it failed.
    checked_at: Option<Instant>,
    has_failed: bool,
}

impl Leader {
    /// A candidate for this server's lanes. Users may hold `unpaid_orders_max` unpaid orders in a lane; 0 means no
    /// limit.
    pub fn new(
        (stores, server): (&Stores, usize),
        lanes: Arc<LaneStates>,
        orders: Orders,
        (metrics, postponed, unpaid_orders_max): (Arc<Metrics>, Postponed, u32),
    ) -> Self {
        let scripts = Arc::new(FenceScripts::new(stores.keys.clone()));
        let recoverer = Recoverer::new(
            stores,
            lanes.clone(),
            scripts.clone(),
            orders,
            (metrics.clone(), postponed.clone(), unpaid_orders_max),
        );
        Self {
            stores: stores.clone(),
            server,
            lanes,
            scripts,
            recoverer,
            postponed,
            metrics,
            notes: tokio::sync::Mutex::default(),
            throttle: Mutex::default(),
        }
    }

    /// Checks the lanes if that is due: once in [`limits::LANE_CHECK_PERIOD`], and at once after a suspicion or a
    /// failure. A lane whose recovery has failed waits for [`limits::RECOVERY_RETRY_PAUSE`].
    pub async fn tick(&self) {
        let mut notes = self.notes.lock().await;
        let lanes = Lane::all(limits::LANES_MAX).filter(|lane| self.keeps(*lane));
        // After a failure, the next tick checks again, without waiting for a period.
        let suspected = self.lanes.take_suspicion(lanes) || std::mem::take(&mut notes.has_failed);
        let due = notes.checked_at.is_none_or(|at| at.elapsed() >= limits::LANE_CHECK_PERIOD);
        if !due && !suspected {
            return;
        }
        if let Err(error) = self.keep(&mut notes, limits::RECOVERY_RETRY_PAUSE).await {
            notes.has_failed = true;
            if self.throttle.lock().is_ok_and(|mut throttle| throttle.allows()) {
                tracing::warn!(%error, "the lanes can't be looked after; trying again");
            }
        }
        notes.checked_at = Some(Instant::now());
    }

    /// Checks all lanes, and recovers those that are closed. If another process leads, only checks the sales that
    /// claims of this process have found lost.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer; lanes that have been closed stay closed until a later run.
    pub async fn run_once(&self) -> Result<(), Failure> {
        self.keep(&mut *self.notes.lock().await, Duration::ZERO).await
    }

    async fn keep(&self, notes: &mut Notes, pause: Duration) -> Result<(), Failure> {
        let pool = &self.stores.pool;
        let redis = self.stores.fleet.at(self.server);
        let mut stored = self.read_now().await?;
        // A process that can't reach Redis leaves the lanes to one that can. An old connection may lead to a Redis that
        // was emptied and that another installation has begun to use.
        if let Err(error) = redis.check().await {
            notes.session = None;
            return Err(error.into());
        }
        if !notes.lead(pool, self.server).await? {
            // The leader doesn't see other processes' claims. It recovers the lanes that are closed here.
            return self.check_sales(&mut stored).await;
        }
        let lanes = installation::read(pool).await?.lanes;
        if usize::try_from(lanes).is_ok_and(|lanes| lanes > self.lanes.all().len()) {
            table::add(pool).await?;
            stored = self.read_now().await?;
        }
        if fence::begin_new(pool, &self.scripts, &*redis.link().await?, &stored).await? {
            stored = self.read_now().await?;
        }
        let mut refused = match self.check(&mut stored, &mut notes.last_seen).await {
            // No lane is recovered until an operator decides.
            Err(failure @ Failure::Apart(_)) => {
                self.read_now().await?;
                self.tell(&failure);
                return Ok(());
            }
            checked => checked?,
        };
        self.check_sales(&mut stored).await?;
        refused = refused.or(self.check_unwritten(&mut stored).await?);
        self.recover_closed(&stored, notes, pause).await?;
        refused.map_or(Ok(()), Err)
    }

    /// As [`records::list`].
    pub async fn recoveries(
        &self,
        filter: RecoveryFilter,
        before: Option<RecoveryId>,
        limit: u32,
    ) -> sqlx::Result<Vec<Recovery>> {
        records::list(&self.stores.pool, filter, before, limit).await
    }

    /// As [`records::settle`].
    pub async fn settle(&self, recovery: RecoveryId, note: &str, by: &Actor) -> sqlx::Result<bool> {
        records::settle(&self.stores.pool, recovery, note, by).await
    }

    /// Lets another process lead at once. For a process that ends.
    pub async fn give_up(&self) {
        if let Some(session) = self.notes.lock().await.session.take()
            && let Err(error) = session.close().await
        {
            tracing::debug!(%error, "the lanes can't be given up; they will be free in a moment");
        }
    }

    /// Compares these lanes in Redis with Postgres, and closes those that differ. If a lane can't be closed, goes on,
    /// and returns the failure at the end.
    async fn check(
        &self,
        stored: &mut [StoredLane],
        last_seen: &mut HashMap<Lane, LastSeen>,
    ) -> Result<Option<Failure>, Failure> {
        let Stores { fleet, keys, .. } = &self.stores;
        let lanes: Vec<Lane> = stored.iter().map(|stored| stored.lane).collect();
        let (now, seen) = read_lanes(fleet.at(self.server), keys, &lanes).await?;
        let postgres_run = apart::examine(&self.stores, &seen).await?;
        let mut refused = None;
        for (lane, (_, seen)) in stored.iter_mut().zip(&seen) {
            if !lane.is_open {
                continue;
            }
            let is_other = postgres_run.is_some()
                && seen.postgres_run.is_some()
                && seen.postgres_run != postgres_run;
            let other = is_other.then_some(ClosureReason::OtherPostgres);
            let Some(reason) = other.or(seen.fault(lane)) else {
                last_seen.entry(lane.lane).or_default().note(seen, now);
                continue;
            };
            if reason == ClosureReason::LogLost {
                self.metrics.data_lost.increment(1);
                tracing::error!(lane = %lane.lane, "ALARM: Redis has lost the order log of this lane");
            }
            self.try_to_close(lane, reason, &mut refused).await?;
        }
        Ok(refused)
    }

    /// Closes a lane. If Postgres refuses to change its row, notes the failure in `refused`.
    async fn try_to_close(
        &self,
        lane: &mut StoredLane,
        reason: ClosureReason,
        refused: &mut Option<Failure>,
    ) -> Result<(), Failure> {
        match self.close(lane, reason).await {
            Err(failure) if failure.is_of_item() => *refused = Some(failure),
            closed => closed?,
        }
        Ok(())
    }

    /// Closes the lanes of sales that are suspected to be lost, and are; and of sales that couldn't be built and are
    /// due for another try. The other sales that couldn't be built stay closed alone.
    async fn check_sales(&self, stored: &mut [StoredLane]) -> Result<(), Failure> {
        let Stores { pool, fleet, keys } = &self.stores;
        let redis = fleet.at(self.server);
        let mut suspected = self.lanes.take_suspected_sales(|lane| self.keeps(lane));
        let mut tries = self.postponed.begin(Job::Rebuild).await?;
        let due: Vec<CouponId> = tries.due().into_iter().flat_map(CouponId::new).collect();
        suspected.extend(&due);
        for coupon in suspected {
            let is_its = |lane: &&mut StoredLane| lane.lane == coupon.lane() && lane.is_open;
            let Some(lane) = stored.iter_mut().find(is_its) else {
                continue;
            };
            let is_whole = match count_sale(redis, keys, coupon).await {
                // A sale that can't be read is lost.
                Err(error) if is_data_error(&error) => false,
                count => {
                    let count = count?;
                    count.is_conserved()
                        && count.epoch == Some(lane.epoch)
                        && count.load == stock::load_id(pool, coupon).await?
                }
            };
            let tried = if is_whole || !stock::is_loaded(pool, coupon).await? {
                Ok(())
            } else if self.postponed.waits(Job::Rebuild, coupon.get()).await? {
                continue;
            } else if due.contains(&coupon) && stock::lock_holder(pool, coupon).await?.is_some() {
                // Closing the lane would be in vain. The sale stays due.
                continue;
            } else {
                tracing::error!(%coupon, "ALARM: Redis has lost this sale, or part of it");
                match self.close(lane, ClosureReason::SaleLost).await {
                    // The note stays until the sale has been built.
                    Ok(()) => continue,
                    failed => failed,
                }
            };
            tries.settle(coupon.get(), tried).await?;
        }
        Ok(())
    }

    /// Closes open lanes for which unwritten claims were handed in late, if neither store has one of these claims.
    /// Returns a failure about one lane, if any; it doesn't stop the others.
    async fn check_unwritten(&self, stored: &mut [StoredLane]) -> Result<Option<Failure>, Failure> {
        let mut late = unwritten::table::late(&self.stores.pool).await?;
        late.sort_by_key(|claim| claim.coupon);
        let mut refused = None;
        for of_sale in late.chunk_by(|one, next| one.coupon == next.coupon) {
            let lane = of_sale[0].coupon.lane();
            let Some(lane) = stored.iter_mut().find(|stored| stored.lane == lane && stored.is_open)
            else {
                continue;
            };
            if !self.has_accepted(of_sale).await? {
                self.try_to_close(lane, ClosureReason::PromisesLost, &mut refused).await?;
            }
        }
        Ok(refused)
    }

    /// Whether all these unwritten claims of a sale are buyers in Redis: their entries are still in the log.
    async fn has_accepted(&self, of_sale: &[UnwrittenClaim]) -> Result<bool, Failure> {
        let Stores { fleet, keys, .. } = &self.stores;
        let redis = fleet.at(self.server);
        for part in of_sale.chunks(limits::UNWRITTEN_AT_A_TIME) {
            let users = part.iter().map(|claim| claim.user);
            let orders = match buyers::orders_of(redis, keys, part[0].coupon, users).await {
                Err(failure) if failure.is_of_item() => return Ok(false),
                orders => orders?,
            };
            if part.iter().zip(orders).any(|(claim, order)| order != Some(claim.order)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn close(&self, lane: &mut StoredLane, reason: ClosureReason) -> Result<(), Failure> {
        let raised = table::raise(&self.stores.pool, lane.lane, lane.epoch, Some(reason)).await?;
        let Some(epoch) = raised else {
            return Ok(());
        };
        self.metrics.recovery.lanes_closed.increment(1);
        let reason = reason.sentence();
        tracing::warn!(lane = %lane.lane, epoch, reason, "a lane is closed until Redis has been compared with Postgres");
        (lane.epoch, lane.is_open) = (epoch, false);
        Ok(())
    }

    fn tell(&self, failure: &Failure) {
        if self.throttle.lock().is_ok_and(|mut throttle| throttle.allows()) {
            tracing::error!("{failure}");
        }
    }

    fn keeps(&self, lane: Lane) -> bool {
        self.stores.fleet.number(lane) == self.server
    }

    /// Reads the states of all lanes, and shows how many are closed. Returns the lanes of this server.
    async fn read_now(&self) -> sqlx::Result<Vec<StoredLane>> {
        let mut stored = self.lanes.read_now().await?;
        let closed = stored.iter().filter(|lane| !lane.is_open).count();
        self.metrics.recovery.lanes_recovering.set(closed as f64);
        stored.retain(|stored| self.keeps(stored.lane));
        Ok(stored)
    }

    /// Recovers closed lanes, several at a time, except those whose recovery has just failed. A lane that can't be
    /// recovered doesn't stop the others.
    async fn recover_closed(
        &self,
        stored: &[StoredLane],
        notes: &mut Notes,
        pause: Duration,
    ) -> Result<(), Failure> {
        let Notes { session, last_seen, failed_at, .. } = notes;
        failed_at.retain(|_, at| at.elapsed() < pause);
        let is_due = |lane: &&StoredLane| !lane.is_open && !failed_at.contains_key(&lane.lane);
        let closed: Vec<&StoredLane> = stored.iter().filter(is_due).collect();
        if closed.is_empty() {
            return Ok(());
        }
        let busy: Vec<Lane> = closed.iter().map(|stored| stored.lane).collect();
        let before = last_seen.clone();
        let recover = |lane: &'_ StoredLane| {
            let (lane, last_seen) = (lane.clone(), before.get(&lane.lane).copied());
            async move {
                (lane.lane, self.recoverer.recover(&lane, last_seen.unwrap_or_default()).await)
            }
        };
        let recoveries = stream::iter(closed).map(recover);
        let recovered = recoveries.buffer_unordered(limits::RECOVERIES_AT_A_TIME).collect();
        let recovered: Vec<_> = tokio::select! {
            recovered = recovered => recovered,
            () = self.keep_on(session, last_seen, &busy) => Vec::new(),
        };
        self.read_now().await?;
        let mut failed = Ok(());
        for (lane, recovered) in recovered {
            match recovered {
                Ok(seen) => last_seen.extend(seen.map(|seen| (lane, seen))),
                Err(failure) => {
                    failed_at.insert(lane, Instant::now());
                    failed = Err(failure);
                }
            }
        }
        failed
    }

    /// Stays leader while a recovery, which may take long, goes on, and checks the other lanes. Lanes closed here are
    /// recovered by the next run. Never ends.
    async fn keep_on(
        &self,
        session: &mut Option<LockSession>,
        last_seen: &mut HashMap<Lane, LastSeen>,
        busy: &[Lane],
    ) {
        loop {
            tokio::time::sleep(limits::LANE_CHECK_PERIOD).await;
            let checked = async {
                if let Some(session) = session {
                    session.ping().await?;
                }
                let mut others = self.read_now().await?;
                others.retain(|stored| !busy.contains(&stored.lane));
                self.check(&mut others, last_seen).await.map(drop)
            };
            match checked.await {
                Err(failure @ Failure::Apart(_)) => self.tell(&failure),
                Err(error) => tracing::warn!(%error, "the other lanes can't be looked at"),
                Ok(()) => {}
            }
        }
    }
}

impl Notes {
    /// Whether this process is the leader. Reopens a session that has ended, and whose lock ended with it.
    async fn lead(&mut self, pool: &PgPool, server: usize) -> sqlx::Result<bool> {
        let lock = (LEADS, i32::try_from(server).unwrap_or_default());
        if let Some(mut session) = self.session.take() {
            let leads = match self.leads {
                true => session.ping().await.map(|()| true),
                false => session.try_lock(lock).await,
            };
            if let Ok(leads) = leads {
                (self.session, self.leads) = (Some(session), leads);
                return Ok(leads);
            }
        }
        let mut session = LockSession::open(pool, limits::PROCESS_SILENCE_MAX).await?;
        self.leads = session.try_lock(lock).await?;
        self.session = Some(session);
        Ok(self.leads)
    }
}

/// Pause between two ticks.
pub const TICK: Duration = Duration::from_millis(50);
