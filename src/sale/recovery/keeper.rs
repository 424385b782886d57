//! The keeper of the lanes: compares each with its approved state, closes those that differ, and has them recovered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use super::apart;
use super::closures::{self, RecoveryFilter};
use super::lane::{LastSeen, Recoverer};
use super::records::{self, Recovery};
use crate::base::limits;
use crate::base::telemetry::{LogThrottle, Metrics};
use crate::kit::redis::is_data_error;
use crate::sale::audit::Actor;
use crate::sale::buyers::census::census;
use crate::sale::coupon::stock;
use crate::sale::fence::look::{Seen, look};
use crate::sale::fence::scripts::FenceScripts;
use crate::sale::fence::table::{self, StoredLane};
use crate::sale::fence::{ClosureReason, LaneStates};
use crate::sale::ids::{CouponId, Lane, RecoveryId};
use crate::sale::order::write::Orders;
use crate::sale::pass::Pass;
use crate::sale::postponed::Postponed;
use crate::sale::{Failure, Stores, fence, installation, receipts};

/// Looks after the lanes. One process of an installation does; the others look at sales that
/// their own claims have found lost.
pub struct Keeper {
    stores: Stores,
    lanes: Arc<LaneStates>,
    scripts: Arc<FenceScripts>,
    recoverer: Recoverer,
    postponed: Postponed,
    metrics: Arc<Metrics>,
    /// Name of this process among the keepers.
    process: String,
    /// Held by a pass: two of one process would close lanes that the other one is opening.
    passing: tokio::sync::Mutex<()>,
    /// What the last look has seen of each lane.
    last_seen: Mutex<HashMap<Lane, LastSeen>>,
    /// Time of the last look.
    looked_at: Mutex<Option<Instant>>,
    throttle: Mutex<LogThrottle>,
}

impl Keeper {
    /// A keeper that hasn't looked yet. Users may hold `unpaid_orders_max` unpaid orders in a lane; 0 for no bound.
    pub fn new(
        stores: &Stores,
        lanes: Arc<LaneStates>,
        orders: Orders,
        (metrics, postponed, unpaid_orders_max): (Arc<Metrics>, Postponed, u32),
        process: String,
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
            lanes,
            scripts,
            recoverer,
            postponed,
            metrics,
            process,
            passing: tokio::sync::Mutex::default(),
            last_seen: Mutex::default(),
            looked_at: Mutex::default(),
            throttle: Mutex::default(),
        }
    }

    /// Looks if that is due: once in [`limits::LOOK_PERIOD`], and at once after a suspicion.
    pub async fn tick(&self) {
        let suspected = self.lanes.take_suspicion();
        let is_due = |at: &Option<Instant>| at.is_none_or(|at| at.elapsed() >= limits::LOOK_PERIOD);
        let due = is_due(&self.looked_at.lock().expect("no holder of this lock panics"));
        if !due && !suspected {
            return;
        }
        if let Err(error) = self.pass().await {
            // The next tick tries again, and not only after a period.
            self.lanes.suspect_all();
            if self.throttle.lock().is_ok_and(|mut throttle| throttle.allows()) {
                tracing::warn!(%error, "the lanes can't be looked after; trying again");
            }
        }
        *self.looked_at.lock().expect("no holder of this lock panics") = Some(Instant::now());
    }

    /// Looks at all lanes, and recovers those that are closed. While another process keeps the lanes, looks only at the sales
    /// that claims of this process have found lost.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer; lanes that have been closed stay so until a later pass.
    pub async fn pass(&self) -> Result<(), Failure> {
        let _alone = self.passing.lock().await;
        let pool = &self.stores.pool;
        let mut stored = self.lanes.read_now().await?;
        self.show(&stored);
        if stored.iter().any(|lane| !lane.is_open)
            && let Some(time) = records::median_time(pool).await?
        {
            self.lanes.note_recovery_time(time);
        }
        // A process that doesn't reach Redis leaves the lanes to one that does. A live connection may lead to a Redis that
        // was emptied, and that another installation has begun to use.
        self.stores.redis.check().await?;
        if !table::keep(pool, &self.process, limits::KEEPER_TIME).await? {
            // The keeper hears of no claim but its own. It recovers what is closed here.
            return self.look_at_sales(&mut stored).await;
        }
        let lanes = installation::read(pool).await?.lanes;
        if usize::try_from(lanes).is_ok_and(|lanes| lanes > stored.len()) {
            table::add(pool).await?;
            stored = self.lanes.read_now().await?;
        }
        let link = self.stores.redis.link().await?;
        if fence::begin_new(pool, &self.scripts, &link, &stored).await? {
            stored = self.lanes.read_now().await?;
        }
        let mut refused = match self.look(&mut stored).await {
            // Until an operator decides, no lane is recovered.
            Err(failure @ Failure::Apart(_)) => {
                self.show(&self.lanes.read_now().await?);
                self.tell(&failure);
                return Ok(());
            }
            looked => looked?,
        };
        self.look_at_sales(&mut stored).await?;
        refused = refused.or(self.look_at_receipts(&mut stored).await?);
        self.recover_closed(&stored).await?;
        refused.map_or(Ok(()), Err)
    }

    /// Recoveries that fit, as [`closures::list`].
    pub async fn recoveries(
        &self,
        filter: &RecoveryFilter,
        behind: Option<RecoveryId>,
        limit: u32,
    ) -> sqlx::Result<Vec<Recovery>> {
        closures::list(&self.stores.pool, filter, behind, limit).await
    }

    /// Notes that the claims that a recovery could not keep are settled with their buyers, as [`records::settle`].
    pub async fn settle(&self, recovery: RecoveryId, note: &str, by: &Actor) -> sqlx::Result<bool> {
        records::settle(&self.stores.pool, recovery, note, by).await
    }

    /// Lets another process keep the lanes at once. For a process that ends.
    pub async fn give_up(&self) {
        if let Err(error) = table::give_up(&self.stores.pool, &self.process).await {
            tracing::debug!(%error, "the lanes can't be given up; they will be free in a moment");
        }
    }

    /// Compares these lanes in Redis with Postgres, and closes those that differ. Returns the failure to close a lane, which
    /// holds up no other.
    async fn look(&self, stored: &mut [StoredLane]) -> Result<Option<Failure>, Failure> {
        let Stores { redis, keys, .. } = &self.stores;
        let lanes: Vec<Lane> = stored.iter().map(|stored| stored.lane).collect();
        let (now, seen) = look(redis, keys, &lanes).await?;
        let life = apart::examine(&self.stores, &seen).await?;
        let mut refused = None;
        for (lane, (_, seen)) in stored.iter_mut().zip(&seen) {
            if !lane.is_open {
                continue;
            }
            let is_other = life.is_some() && seen.life.is_some() && seen.life != life;
            let other = is_other.then_some(ClosureReason::OtherPostgres);
            let Some(reason) = other.or(seen.fault(lane)) else {
                self.note(lane.lane, seen, now);
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

    /// Remembers what a look has seen of a lane that is in order.
    fn note(&self, lane: Lane, seen: &Seen, now: DateTime<Utc>) {
        let mut last_seen = self.last_seen.lock().expect("no holder of this lock panics");
        let last = last_seen.entry(lane).or_default();
        last.promised = seen.promised;
        if seen.promised == seen.written {
            last.settled = Some((seen.promised, now));
        }
    }

    /// Closes a lane, or notes that its row takes no change.
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

    /// Closes the lanes of sales that were suspected to be lost, and are; and of sales that could not be built before and
    /// are due again. The others of those stay closed alone.
    async fn look_at_sales(&self, stored: &mut [StoredLane]) -> Result<(), Failure> {
        let Stores { pool, redis, keys } = &self.stores;
        let mut suspected = self.lanes.take_suspected_sales();
        let mut tries = self.postponed.begin(Pass::Rebuild).await?;
        suspected.extend(tries.due().into_iter().flat_map(CouponId::new));
        for coupon in suspected {
            let is_its = |lane: &&mut StoredLane| lane.lane == coupon.lane() && lane.is_open;
            let Some(lane) = stored.iter_mut().find(is_its) else {
                continue;
            };
            let is_whole = match census(redis, keys, coupon).await {
                // A sale that can't be read is lost.
                Err(error) if is_data_error(&error) => false,
                census => {
                    let census = census?;
                    census.is_conserved()
                        && census.epoch == Some(lane.epoch)
                        && census.load == stock::load_id(pool, coupon).await?
                }
            };
            if is_whole || !stock::is_loaded(pool, coupon).await? {
                tries.settle(coupon.get(), Ok(())).await?;
            } else if !self.postponed.waits(Pass::Rebuild, coupon.get()).await? {
                tracing::error!(%coupon, "ALARM: Redis has lost this sale, or part of it");
                if let Err(failure) = self.close(lane, ClosureReason::SaleLost).await {
                    tries.settle(coupon.get(), Err::<(), _>(failure)).await?;
                }
            }
        }
        Ok(())
    }

    /// Closes open lanes for which a process has handed in late, if a promise is in neither store. The others are
    /// settled. Returns a failure about one lane, if there was any: it holds up no other.
    async fn look_at_receipts(
        &self,
        stored: &mut [StoredLane],
    ) -> Result<Option<Failure>, Failure> {
        let mut failed = None;
        for lane in receipts::table::lanes(&self.stores.pool).await? {
            let is_its = |stored: &&mut StoredLane| stored.lane == lane && stored.is_open;
            let Some(stored) = stored.iter_mut().find(is_its) else {
                continue;
            };
            match self.look_at_receipts_of(stored).await {
                Err(failure) if failure.is_of_item() => failed = Some(failure),
                looked => looked?,
            }
        }
        Ok(failed)
    }

    async fn look_at_receipts_of(&self, stored: &mut StoredLane) -> Result<(), Failure> {
        let pool = &self.stores.pool;
        let open = receipts::table::open(pool, stored.lane).await?;
        match self.recoverer.are_kept(&open).await? {
            true => Ok(receipts::table::settle(pool, &open).await?),
            false => self.close(stored, ClosureReason::PromisesLost).await,
        }
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

    /// Shows the number of lanes that are closed.
    fn show(&self, stored: &[StoredLane]) {
        let closed = stored.iter().filter(|lane| !lane.is_open).count();
        self.metrics.recovery.lanes_recovering.set(closed as f64);
    }

    /// Recovers closed lanes, some at a time. A lane that can't be recovered holds up no other.
    async fn recover_closed(&self, stored: &[StoredLane]) -> Result<(), Failure> {
        self.show(stored);
        let closed: Vec<StoredLane> = stored.iter().filter(|lane| !lane.is_open).cloned().collect();
        if closed.is_empty() {
            return Ok(());
        }
        let busy: Vec<Lane> = closed.iter().map(|stored| stored.lane).collect();
        let last_seen = self.last_seen.lock().expect("no holder of this lock panics").clone();
        let recover = |lane: StoredLane| {
            let last_seen = last_seen.get(&lane.lane).copied().unwrap_or_default();
            async move {
                let seen = self.recoverer.recover(&lane, last_seen).await?;
                let mut all = self.last_seen.lock().expect("no holder of this lock panics");
                all.extend(seen.map(|seen| (lane.lane, seen)));
                Ok(())
            }
        };
        let recoveries = stream::iter(closed).map(recover);
        let recovered = recoveries.buffer_unordered(limits::RECOVERIES_AT_A_TIME);
        let recovered = recovered.fold(Ok(()), async |all: Result<(), Failure>, one| one.and(all));
        let recovered = tokio::select! {
            recovered = recovered => recovered,
            failure = self.keep_on(&busy) => Err(failure),
        };
        self.show(&self.lanes.read_now().await?);
        recovered
    }

    /// Stays the keeper for as long as this is polled. Ends when another process has taken over.
    async fn keep_on(&self, busy: &[Lane]) -> Failure {
        loop {
            tokio::time::sleep(limits::KEEPER_TIME / 3).await;
            match table::keep(&self.stores.pool, &self.process, limits::KEEPER_TIME).await {
                Ok(true) => {}
                Ok(false) => return Failure::NoReply,
                Err(error) => return error.into(),
            }
            if let Err(failure) = self.look_at_others(busy).await {
                return failure;
            }
        }
    }

    /// Looks at lanes that aren't recovered at the moment: a recovery may take long. Those that are closed here are recovered
    /// by the next pass.
    async fn look_at_others(&self, busy: &[Lane]) -> Result<(), Failure> {
        let mut others = self.lanes.read_now().await?;
        self.show(&others);
        others.retain(|stored| !busy.contains(&stored.lane));
        self.look(&mut others).await.map(drop)
    }
}

/// Time between two looks at whether a look is due.
pub const TICK: Duration = Duration::from_millis(50);
