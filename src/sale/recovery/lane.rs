//! One recovery of one lane, step by step.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::{Instant, sleep};

use super::build::Builder;
use super::damage::{Assessor, Damage, are_buyers, by_coupon};
use super::harvest::{Harvester, unknown};
use super::log_patience::LogPatience;
use super::records::{self, LostClaim, Outcome, REFUSED, SUPERSEDED, WITHOUT_UNIT};
use super::unpaid::ListBuilder;
use crate::base::limits;
use crate::base::telemetry::{Metrics, RecoveryFate};
use crate::kit::postgres;
use crate::kit::redis::Link;
use crate::sale::fence::LaneStates;
use crate::sale::fence::scripts::{self, FenceScripts, Fenced};
use crate::sale::fence::table::{self, NotedBeat, Settled, StoredLane};
use crate::sale::ids::{CouponId, Lane, OrderId, order_id};
use crate::sale::log::{LogState, OrderLog};
use crate::sale::order::dead_letter;
use crate::sale::order::live::{self, PAGE};
use crate::sale::order::write::Orders;
use crate::sale::pass::Pass;
use crate::sale::postponed::Postponed;
use crate::sale::receipts::book::Receipt;
use crate::sale::{Failure, Stores, installation, receipts};

/// Recovers lanes.
pub(super) struct Recoverer {
    stores: Stores,
    lanes: Arc<LaneStates>,
    scripts: Arc<FenceScripts>,
    assessor: Assessor,
    builder: Builder,
    harvester: Harvester,
    postponed: Postponed,
    lists: ListBuilder,
    metrics: Arc<Metrics>,
}

impl Recoverer {
    pub(super) fn new(
        stores: &Stores,
        lanes: Arc<LaneStates>,
        scripts: Arc<FenceScripts>,
        orders: Orders,
        (metrics, postponed, unpaid_orders_max): (Arc<Metrics>, Postponed, u32),
    ) -> Self {
        Self {
            stores: stores.clone(),
            lanes,
            scripts,
            assessor: Assessor::new(stores),
            builder: Builder::new(stores),
            harvester: Harvester::new(stores, orders),
            postponed,
            lists: ListBuilder::new(stores, unpaid_orders_max),
            metrics,
        }
    }

    /// Recovers a closed lane, unless another recovery has begun meanwhile.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer, or the order log isn't written in time: the lane stays closed.
    pub(super) async fn recover(&self, closed: &StoredLane) -> Result<(), Failure> {
        let Stores { pool, redis, keys } = &self.stores;
        let lane = closed.lane;
        // All that follows holds for one life of Redis and one replication ID: no other is approved by this recovery.
        let link = redis.link().await?;
        // Before the epoch is raised: attempt by attempt, it would catch up with that of Redis.
        if scripts::epoch(keys, &link, lane).await? > Some(closed.epoch) {
            return Err(Failure::NewerEpoch(lane));
        }
        let Some(epoch) = table::raise(pool, lane, closed.epoch, "").await? else {
            return Ok(());
        };
        self.lanes.read_now().await?;
        let Some(closed_at) = records::begin(pool, lane, epoch).await? else {
            return Ok(());
        };
        let origin = link.origin().await?;
        if !self.fence(&link, lane, epoch).await? {
            return Ok(());
        }
        let noted = table::beat(pool, lane).await?;
        let mut outcome = Outcome::default();
        self.lists.remove_unfinished(&link, lane, epoch).await?;
        let receipts = self.receipts(lane, epoch, &mut outcome).await?;
        let believed = closed.harvests.then_some(&noted);
        let look = self.assessor.look(&link, lane, epoch, believed, &receipts).await?;
        let Damage { mut kept, mut damaged, adopted } = look;
        outcome.steps = adopted;
        // Notes a log that was lost, also one that was begun anew by another program before a worker saw that.
        self.begin_log(lane).await?;
        if scripts::has_lost_log(keys, &link, lane).await? {
            // The sales may be as they were; their orders may be nowhere else.
            damaged.append(&mut kept);
        }
        outcome.kept = i64::try_from(kept.len()).unwrap_or(i64::MAX);
        let lane_is_whole = damaged.is_empty() && !kept.is_empty();
        let promised = if lane_is_whole {
            outcome.unknown = Some(0);
            None
        } else {
            self.rebuild(&link, (closed, epoch), &damaged, &receipts, &mut outcome).await?;
            let in_redis = scripts::promised(keys, &link, lane).await?;
            let promised = in_redis.max(noted.promised);
            outcome.unknown = self.unknown((closed, closed_at), &noted, promised, &outcome).await?;
            Some(promised)
        };
        // Redis went back meanwhile. From here on, the next look finds that.
        if link.origin().await? != origin {
            return Ok(());
        }
        let first = first_beat(&link, &noted, promised).await?;
        table::note_beats(pool, &[first]).await?;
        if !kept.is_empty() {
            table::note_unchecked(pool, lane).await?;
        }
        if !table::open(pool, lane, epoch, &origin).await? {
            return Ok(());
        }
        let closed_for = records::end(pool, lane, epoch, &outcome).await?;
        receipts::table::settle(pool, &receipts).await?;
        let second = self.last_second(lane, &receipts).await?;
        let (as_approved, told) = ((epoch, first.beat, &origin), (outcome.steps, second));
        let opened = self.scripts.open(&link, lane, as_approved, promised, told).await?;
        self.lanes.read_now().await?;
        self.tell((lane, epoch, opened), outcome, closed_for);
        Ok(())
    }

    /// Closes the lane in Redis. False if the lane has a newer epoch.
    async fn fence(&self, link: &Link, lane: Lane, epoch: i64) -> Result<bool, Failure> {
        let identity = installation::identity(&self.stores.pool).await?;
        let fenced = self.scripts.fence(link, lane, epoch, &identity).await?;
        if let Fenced::MovedAside(moved) = &fenced {
            tracing::error!(%lane, epoch, moved, "ALARM: a key of another type stood in the place of the order log; it has this name now, and the log is begun anew");
        }
        Ok(fenced != Fenced::Ahead)
    }

    /// Tells the metrics of a recovery, and the log, if the lane is open.
    fn tell(
        &self,
        (lane, epoch, opened): (Lane, i64, bool),
        outcome: Outcome,
        closed_for: Option<Duration>,
    ) {
        let Outcome {
            kept,
            built,
            buyers,
            harvested,
            receipts,
            absent,
            dropped,
            unknown,
            lost,
            ..
        } = outcome;
        let unknown = unknown.unwrap_or(0);
        let of = |reason: &str| lost.iter().filter(|claim| claim.reason == reason).count();
        let counts = [
            (RecoveryFate::Receipt, u64::try_from(receipts).unwrap_or(0)),
            (RecoveryFate::Harvested, u64::try_from(harvested).unwrap_or(0)),
            (RecoveryFate::Superseded, of(SUPERSEDED) as u64),
            (RecoveryFate::WithoutUnit, of(WITHOUT_UNIT) as u64),
            (RecoveryFate::Refused, of(REFUSED) as u64),
            (RecoveryFate::Unknown, u64::try_from(unknown).unwrap_or(0)),
        ];
        counts.into_iter().for_each(|(fate, claims)| self.metrics.recovery.count(fate, claims));
        if let Some(closed_for) = closed_for {
            self.metrics.recovery.lane_closed_seconds.record(closed_for);
        }
        if !opened {
            return;
        }
        let absent = absent.join(", ");
        tracing::warn!(%lane, epoch, kept, built, buyers, harvested, receipts, absent, dropped, unknown, lost = lost.len(), "the lane is open again");
    }

    /// Whether each of these promises is a row, a dead letter, or a buyer in Redis.
    pub(super) async fn are_kept(&self, promises: &[Receipt]) -> Result<bool, Failure> {
        for (coupon, promised) in by_coupon(promises.iter().map(Receipt::claim)) {
            for part in promised.chunks(PAGE) {
                let unknown = unknown(&self.stores.pool, coupon, part.to_vec()).await?;
                if !are_buyers(&self.stores, coupon, &unknown).await? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Has the log written, and builds the damaged sales and the lists of unpaid orders anew. A sale that can't be built
    /// is removed and put aside, so that it stays closed alone.
    async fn rebuild(
        &self,
        link: &Link,
        (closed, epoch): (&StoredLane, i64),
        damaged: &[CouponId],
        receipts: &[Receipt],
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        self.wait_for_log(closed.lane).await?;
        for coupon in damaged {
            let of_lane = (closed.harvests, epoch);
            match self.rebuild_sale(link, *coupon, of_lane, receipts, outcome).await {
                Err(failure) if failure.is_of_item() => {
                    self.builder.remove(*coupon, epoch).await?;
                    outcome.steps += 1;
                    let error = failure.to_string();
                    self.postponed.note(Pass::Rebuild, &[coupon.get()], &error).await?;
                }
                built => built?,
            }
        }
        outcome.steps += 1;
        self.lists.build(link, closed.lane, epoch).await
    }

    async fn rebuild_sale(
        &self,
        link: &Link,
        coupon: CouponId,
        (harvests, epoch): (bool, i64),
        receipts: &[Receipt],
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        if harvests {
            self.harvester.harvest(coupon, epoch, outcome).await?;
        }
        let of_sale = receipts.iter().filter(|receipt| receipt.coupon == coupon);
        let of_sale = of_sale.map(|receipt| (receipt.user, receipt.order)).collect();
        outcome.receipts += self.harvester.take(coupon, epoch, of_sale, outcome).await?;
        self.builder.build(link, coupon, epoch, outcome).await
    }

    /// The receipts of the processes that live. Waits for each of them, up to [`limits::RECEIPT_WAIT_MAX`].
    async fn receipts(
        &self,
        lane: Lane,
        epoch: i64,
        outcome: &mut Outcome,
    ) -> Result<Vec<Receipt>, Failure> {
        let pool = &self.stores.pool;
        receipts::table::forget_dead(pool).await?;
        let deadline = Instant::now() + limits::RECEIPT_WAIT_MAX;
        loop {
            let missing = receipts::table::missing(pool, lane, epoch, limits::KEEPER_TIME).await?;
            if missing.is_empty() || Instant::now() >= deadline {
                outcome.absent = missing;
                outcome.dropped = receipts::table::dropped(pool, lane, epoch).await?;
                return Ok(receipts::table::open(pool, lane).await?);
            }
            sleep(limits::RECOVERY_RECEIPT_PERIOD).await;
        }
    }

    /// Waits until the workers have written all that is in the order log.
    async fn wait_for_log(&self, lane: Lane) -> Result<(), Failure> {
        let Stores { redis, keys, .. } = &self.stores;
        let mut patience = LogPatience::begin(Instant::now());
        loop {
            let state = LogState::of(redis, keys, lane).await?;
            if state.is_settled() {
                return Ok(());
            }
            if patience.is_over(state, Instant::now()) {
                tracing::error!(%lane, "the lane can't be recovered before its order log is written: does a worker run, and does Postgres answer?");
                return Err(Failure::NoReply);
            }
            sleep(limits::RECOVERY_LOOK_PERIOD).await;
        }
    }

    /// Begins the log if it is missing, or has no group: claims are refused without it once orders have been promised, and
    /// workers don't begin a log that was lost.
    async fn begin_log(&self, lane: Lane) -> Result<(), Failure> {
        let Stores { redis, keys, .. } = &self.stores;
        let log = OrderLog::new(redis.clone(), keys, lane);
        Ok(log.begin_anew().await?)
    }

    /// The second, since 2022, behind which the next order ids of the lane begin: of two claims of a user, the later one has
    /// the higher id. It is Postgres's, or a later one of an order, a dead letter or a receipt. One that is too far ahead
    /// doesn't count: its claim becomes no order.
    async fn last_second(&self, lane: Lane, receipts: &[Receipt]) -> Result<i64, Failure> {
        let pool = &self.stores.pool;
        let now = postgres::time(pool).await?;
        let ahead = (now, now + limits::ORDER_AHEAD_MAX);
        let rows = live::highest_between(pool, lane, ahead).await?;
        let letters = dead_letter::highest_between(pool, lane, ahead).await?;
        let receipts = receipts.iter().map(|receipt| receipt.order);
        let seen = receipts.filter(|order| order.time() < ahead.1).chain(rows).chain(letters);
        let last = seen.map(OrderId::second).max().unwrap_or_default();
        Ok(last.max(order_id::second_at(now)))
    }

    /// Claims that Redis had granted, and that neither Postgres nor this recovery knows, now that the log is written, and
    /// that receipts and buyers are orders: at least so many. Claims that were granted after the last beat are in no
    /// count, and known ones among them may hide as many. `None` where not even that can be known.
    async fn unknown(
        &self,
        (closed, closed_at): (&StoredLane, DateTime<Utc>),
        noted: &NotedBeat,
        promised: i64,
        outcome: &Outcome,
    ) -> Result<Option<i64>, Failure> {
        let is_recent = |of: &Settled| {
            (noted.at - of.at).to_std().unwrap_or_default() < limits::SETTLED_AGE_MAX
        };
        let Some(settled) = noted.settled.filter(|of| closed.harvests && is_recent(of)) else {
            return Ok(None);
        };
        let pool = &self.stores.pool;
        let rows = live::count_since(pool, closed.lane, settled.at, closed_at).await?;
        let letters = dead_letter::count_since(pool, closed.lane, settled.at).await?;
        // The others have a dead letter.
        let is_listed = |lost: &&LostClaim| [SUPERSEDED, REFUSED].contains(&&*lost.reason);
        let listed = outcome.lost.iter().filter(is_listed).count();
        let known = rows + letters + i64::try_from(listed).unwrap_or(i64::MAX);
        Ok(Some((promised - settled.promised - known).max(0)))
    }
}

/// The beat to open a lane with: no older state of Redis has it, since one above the noted one may have been raised
/// without a note. With a number of promised orders, all of them are written, or known to be lost.
async fn first_beat(
    link: &Link,
    noted: &NotedBeat,
    promised: Option<i64>,
) -> Result<NotedBeat, Failure> {
    let first = NotedBeat { beat: noted.beat + 2, ..*noted };
    let Some(promised) = promised else {
        return Ok(first);
    };
    let (seconds, micros): (i64, u32) = link.query(&redis::cmd("TIME")).await?;
    let now = DateTime::from_timestamp(seconds, micros * 1_000);
    let settled = now.map(|at| Settled { promised, at });
    Ok(NotedBeat { promised, settled, ..first })
}
