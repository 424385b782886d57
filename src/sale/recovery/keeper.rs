//! The keeper of the lanes: compares each with its approved state, closes those that differ, and has them recovered.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::{StreamExt, stream};
use redis::RedisResult;
use tokio::time::Instant;

use super::apart;
use super::closures::{self, ClosureReason, RecoveryFilter};
use super::lane::Recoverer;
use super::records::{self, Recovery};
use crate::base::limits;
use crate::base::telemetry::{LogThrottle, Metrics};
use crate::kit::postgres;
use crate::kit::redis::{Link, is_data_error};
use crate::sale::audit::Actor;
use crate::sale::buyers::census::census;
use crate::sale::coupon::stock;
use crate::sale::fence::LaneStates;
use crate::sale::fence::round::{Round, Rounds};
use crate::sale::fence::scripts::{Beat, FenceScripts};
use crate::sale::fence::table::{self, LaneBeat, NotedBeat, Settled, StoredLane};
use crate::sale::ids::{CouponId, Lane, RecoveryId};
use crate::sale::keys::LogId;
use crate::sale::log::layout::LayoutInUse;
use crate::sale::log::{self, EntryId};
use crate::sale::order::write::Orders;
use crate::sale::pass::Pass;
use crate::sale::postponed::Postponed;
use crate::sale::{Failure, Stores, fence, installation, receipts};

/// Looks after the lanes. One process of an installation does; the others wait for it to end.
pub struct Keeper {
    stores: Stores,
    lanes: Arc<LaneStates>,
    scripts: Arc<FenceScripts>,
    recoverer: Recoverer,
    postponed: Postponed,
    metrics: Arc<Metrics>,
    /// Name of this process among the keepers.
    process: String,
    /// Held by a pass: two of one process would raise the beat past each other's notes, and close open lanes.
    passing: tokio::sync::Mutex<()>,
    /// The looks so far, and the lanes that they have found at rest.
    rounds: Mutex<Rounds>,
    /// Time of the last look.
    looked_at: Mutex<Option<Instant>>,
    throttle: Mutex<LogThrottle>,
}

impl Keeper {
    /// A keeper that hasn't looked yet. Users may hold `unpaid_orders_max` unpaid orders in a lane; 0 for no bound.
    pub fn new(
        stores: &Stores,
        lanes: Arc<LaneStates>,
        (orders, layout): (Orders, Arc<LayoutInUse>),
        (metrics, postponed, unpaid_orders_max): (Arc<Metrics>, Postponed, u32),
        process: String,
    ) -> Self {
        let scripts = Arc::new(FenceScripts::new(stores.keys.clone()));
        let recoverer = Recoverer::new(
            stores,
            lanes.clone(),
            scripts.clone(),
            orders,
            layout,
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
            rounds: Mutex::default(),
            looked_at: Mutex::default(),
            throttle: Mutex::default(),
        }
    }

    /// Looks if that is due: once in [`limits::BEAT_PERIOD`], and at once after a suspicion.
    pub async fn tick(&self) {
        let suspected = self.lanes.take_suspicion();
        let is_due = |at: &Option<Instant>| at.is_none_or(|at| at.elapsed() >= limits::BEAT_PERIOD);
        let due = is_due(&self.looked_at.lock().expect("no holder of this lock panics"));
        if !due && !suspected {
            return;
        }
        if let Err(error) = self.look_and_recover(suspected).await {
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
        self.look_and_recover(true).await
    }

    /// Lanes without a sale are looked at only after a suspicion.
    async fn look_and_recover(&self, suspected: bool) -> Result<(), Failure> {
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
            return if suspected { self.look_at_sales(&mut stored).await } else { Ok(()) };
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
        match apart::examine(&self.stores).await {
            Ok(false) => {}
            Ok(true) => self.close_all(&mut stored, ClosureReason::OtherPostgres).await?,
            // Until an operator decides, no lane is recovered.
            Err(failure @ Failure::Apart(_)) => {
                self.show(&self.lanes.read_now().await?);
                self.tell(&failure);
                return Ok(());
            }
            Err(failure) => return Err(failure),
        }
        let beats = table::beats(pool, suspected).await?;
        let (newer, of_look) = match self.look(&link, &mut stored, &beats, suspected).await {
            // Redis can't read one lane, or Postgres refuses its beat: the lanes that are closed don't wait for it.
            Err(failure) if failure.is_of_item() => {
                self.recover_closed(&stored).await?;
                return Err(failure);
            }
            looked => looked?,
        };
        // Only an operator can say which of the stores is right about these.
        stored.retain(|lane| !newer.contains(&lane.lane));
        self.look_at_sales(&mut stored).await?;
        let of_receipts = self.look_at_receipts(&mut stored).await?;
        self.recover_closed(&stored).await?;
        of_look.or(of_receipts).map_or(Ok(()), Err)
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

    /// Compares open lanes with what was noted, and closes those that differ. Returns the lanes of which Redis has a
    /// newer epoch, and the failure to close a lane, which holds up no other. Of the lanes at rest, `all` are compared, or
    /// [some](fence::round).
    async fn look(
        &self,
        link: &Link,
        stored: &mut [StoredLane],
        beats: &[LaneBeat],
        all: bool,
    ) -> Result<(Vec<Lane>, Option<Failure>), Failure> {
        let origin = link.origin().await?;
        let mut epochs = BTreeMap::new();
        let mut refused = None;
        for lane in stored.iter_mut().filter(|lane| lane.is_open) {
            let Some(approved) = &lane.origin else {
                continue;
            };
            if approved.run_id != origin.run_id {
                self.try_to_close(lane, ClosureReason::StartedAnew, &mut refused).await?;
            } else if approved.replication_id != origin.replication_id {
                self.try_to_close(lane, ClosureReason::OtherReplicationId, &mut refused).await?;
            } else {
                epochs.insert(lane.lane, lane.epoch);
            }
        }
        let is_open = |beat: &&LaneBeat| epochs.contains_key(&beat.noted.lane);
        let beats: Vec<LaneBeat> = beats.iter().filter(is_open).copied().collect();
        let round = self.begin_round(&beats, all).await;
        let mut found = Vec::new();
        let mut newer = Vec::new();
        for noted in round.compared() {
            let epoch = epochs[&noted.lane];
            match self.scripts.beat(link, epoch, noted).await? {
                Beat::Epoch(in_redis) if in_redis > epoch => newer.push(noted.lane),
                beat => found.push((*noted, beat)),
            }
        }
        // First: until these are doubted, the witnesses go on telling.
        let unproven = round.unproven(&found);
        if !unproven.is_empty() {
            table::doubt(&self.stores.pool, unproven.iter().copied()).await?;
        }
        for lane in stored.iter_mut().filter(|lane| unproven.contains(&lane.lane)) {
            self.try_to_close(lane, ClosureReason::WentBack, &mut refused).await?;
        }
        found.retain(|(noted, _)| !unproven.contains(&noted.lane));
        self.judge(stored, &found, &mut refused).await?;
        newer.iter().for_each(|lane| self.tell(&Failure::NewerEpoch(*lane)));
        Ok((newer, refused))
    }

    /// Closes the lanes that are open.
    async fn close_all(
        &self,
        stored: &mut [StoredLane],
        reason: ClosureReason,
    ) -> Result<(), Failure> {
        for lane in stored.iter_mut().filter(|lane| lane.is_open) {
            self.close(lane, reason).await?;
        }
        Ok(())
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

    /// Begins a look. Lanes at rest are compared that have an entry since their last beat.
    async fn begin_round(&self, beats: &[LaneBeat], all: bool) -> Round {
        let at_rest = self.rounds().at_rest(beats);
        // A process of before the log of calls may keep the lanes next. It takes a lane that is as noted for whole, however
        // old the note is, so none is left out while there is one.
        let all = all
            || !at_rest.is_empty()
                && postgres::has_older_processes(&self.stores.pool).await.unwrap_or(true);
        let awake = if all { None } else { self.awake(&at_rest).await.ok() };
        // Where two commands can't tell, each lane is compared.
        let awake = awake.unwrap_or_else(|| at_rest.iter().map(|(noted, _)| noted.lane).collect());
        self.rounds().begin(beats, &awake)
    }

    /// The lanes at rest with an entry since that time of Redis; all of them if a lane is gone, or a log that has to be
    /// there.
    async fn awake(&self, at_rest: &[(NotedBeat, DateTime<Utc>)]) -> RedisResult<BTreeSet<Lane>> {
        let Stores { redis, keys, .. } = &self.stores;
        if at_rest.is_empty() {
            return Ok(BTreeSet::new());
        }
        let mut has_to_be_there = Vec::new();
        let mut logs = Vec::new();
        let mut lanes = HashMap::new();
        for (noted, since) in at_rest {
            let lane = noted.lane;
            has_to_be_there.push(keys.lane(lane));
            if noted.promised > 0 {
                has_to_be_there.push(keys.log(LogId::of_calls(lane)));
            }
            let ms = u64::try_from(since.timestamp_millis()).unwrap_or_default();
            for log in LogId::of_lanes([lane].into_iter()).map(|log| keys.log(log)) {
                logs.push((log.clone(), EntryId { ms, sequence: 0 }.before()));
                lanes.insert(log, lane);
            }
        }
        let there: usize = redis.query(redis::cmd("EXISTS").arg(&has_to_be_there)).await?;
        if there < has_to_be_there.len() {
            return Ok(at_rest.iter().map(|(noted, _)| noted.lane).collect());
        }
        let newer = log::newer(redis, &logs, Duration::ZERO).await?;
        Ok(newer.iter().filter_map(|log| lanes.get(log).copied()).collect())
    }

    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().expect("no holder of this lock panics")
    }

    /// Closes the lanes that aren't as they were noted, and notes the beats of the others.
    async fn judge(
        &self,
        stored: &mut [StoredLane],
        found: &[(NotedBeat, Beat)],
        refused: &mut Option<Failure>,
    ) -> Result<(), Failure> {
        let mut confirmed = Vec::new();
        for (noted, beat) in found {
            let reason = match *beat {
                Beat::Confirmed { promised, settled_at } => {
                    let settled = settled_at.map(|at| Settled { promised, at }).or(noted.settled);
                    let now = NotedBeat { beat: noted.beat + 1, promised, settled, ..*noted };
                    confirmed.push((noted, now, settled_at.is_some()));
                    continue;
                }
                Beat::Missing => ClosureReason::DataLost,
                Beat::Epoch(_) => ClosureReason::OlderEpoch,
                Beat::Logless => {
                    self.metrics.data_lost.increment(1);
                    tracing::error!(lane = %noted.lane, "ALARM: Redis has lost the order log of this lane");
                    ClosureReason::LogLost
                }
                Beat::Behind(_) => ClosureReason::WentBack,
                // Postgres approved the lane, and its process died before Redis was told; or Redis went back to a moment of
                // that recovery. Only another look tells.
                Beat::Closed => ClosureReason::CutOff,
            };
            if let Some(lane) = stored.iter_mut().find(|lane| lane.lane == noted.lane) {
                self.try_to_close(lane, reason, refused).await?;
            }
        }
        let beats: Vec<NotedBeat> = confirmed.iter().map(|(_, now, _)| *now).collect();
        table::note_beats(&self.stores.pool, &beats).await?;
        let mut rounds = self.rounds();
        for (before, now, settled_now) in &confirmed {
            rounds.note(before, now, *settled_now);
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
                    census.is_conserved() && census.epoch == Some(lane.epoch)
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
        let reason = reason.sentence();
        let raised = table::raise(&self.stores.pool, lane.lane, lane.epoch, reason).await?;
        let Some(epoch) = raised else {
            return Ok(());
        };
        self.metrics.recovery.lanes_closed.increment(1);
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
        let recover = |lane: StoredLane| async move { self.recoverer.recover(&lane).await };
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

    /// Compares lanes that aren't recovered at the moment: a recovery may take long, and lanes without a beat don't notice
    /// that Redis went back. Those that are closed here are recovered by the next pass.
    async fn look_at_others(&self, busy: &[Lane]) -> Result<(), Failure> {
        let mut others = self.lanes.read_now().await?;
        self.show(&others);
        others.retain(|stored| !busy.contains(&stored.lane));
        let link = self.stores.redis.link().await?;
        let beats = table::beats(&self.stores.pool, false).await?;
        self.look(&link, &mut others, &beats, false).await.map(drop)
    }
}

/// Time between two looks at whether a look is due.
pub const TICK: Duration = Duration::from_millis(50);
