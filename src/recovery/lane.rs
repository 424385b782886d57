//! One recovery of one lane, step by step.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::{Instant, sleep};

use super::apart;
use super::build::Builder;
use super::harvest::Harvester;
use super::records::{self, LostClaim, Outcome, REFUSED, SUPERSEDED, WITHOUT_UNIT};
use super::unpaid::ListBuilder;
use crate::base::limits;
use crate::base::telemetry::{Metrics, RecoveryFate};
use crate::coupon::buyers;
use crate::coupon::stock;
use crate::fence::LaneStates;
use crate::fence::in_redis::{Seen, read_lanes};
use crate::fence::scripts::{FenceScripts, Fenced};
use crate::fence::table::{self, StoredLane, Trust};
use crate::fence::unwritten;
use crate::fence::unwritten::book::UnwrittenClaim;
use crate::log::{GROUP, LogState};
use crate::order::write::Orders;
use crate::order::{dead_letter, live};
use crate::recovery::reconcile::compare::{self, AcceptedClaim, Compared};
use crate::recovery::reconcile::log::InFlight;
use crate::store::ids::{CouponId, Lane, OrderId, order_id};
use crate::store::job::Job;
use crate::store::postgres;
use crate::store::postponed::Postponed;
use crate::store::redis::Link;
use crate::store::{Failure, Stores, installation};

/// What the leader has seen of a lane in Redis.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastSeen {
    /// Number of orders accepted, as of the last check.
    pub accepted: i64,
    /// Number of orders, and Redis's time, of the last check that found all of them written.
    pub settled: Option<(i64, DateTime<Utc>)>,
}

impl LastSeen {
    /// Notes what a check has seen of a healthy lane, at this time of Redis.
    pub fn note(&mut self, seen: &Seen, now: DateTime<Utc>) {
        self.accepted = seen.accepted;
        if seen.accepted == seen.written {
            self.settled = Some((seen.accepted, now));
        }
    }
}

pub(super) struct Recoverer {
    stores: Stores,
    lanes: Arc<LaneStates>,
    scripts: Arc<FenceScripts>,
    builder: Builder,
    harvester: Harvester,
    postponed: Postponed,
    lists: ListBuilder,
    metrics: Arc<Metrics>,
}

/// A recovery under way.
struct Attempt<'a> {
    link: &'a Link,
    lane: Lane,
    epoch: i64,
    trusts: Option<Trust>,
    closed_at: DateTime<Utc>,
    /// Unwritten claims of living processes.
    unwritten: Vec<UnwrittenClaim>,
    /// Claims of the log that may have no row yet.
    log: InFlight,
    /// Whether the workers have had time to write those claims.
    is_drained: bool,
    /// Sales that Redis has kept.
    kept: Vec<CouponId>,
    /// Sales that stay closed while the lane is opened.
    put_aside: Vec<CouponId>,
    outcome: Outcome,
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
            builder: Builder::new(stores),
            harvester: Harvester::new(stores, orders),
            postponed,
            lists: ListBuilder::new(stores, unpaid_orders_max),
            metrics,
        }
    }

    /// Recovers a closed lane, unless another recovery has begun. Returns what to remember of the lane if it is open.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer, or the order log isn't written in time: the lane stays closed.
    pub(super) async fn recover(
        &self,
        closed: &StoredLane,
        last_seen: LastSeen,
    ) -> Result<Option<LastSeen>, Failure> {
        let Stores { pool, fleet, keys } = &self.stores;
        let (lane, trusts) = (closed.lane, closed.trusts);
        let redis = fleet.of(lane);
        let link = redis.link().await?;
        let Some(epoch) = table::raise(pool, lane, closed.epoch, None).await? else {
            return Ok(None);
        };
        self.lanes.read_now().await?;
        let Some(begun) = records::begin(pool, lane, epoch).await? else {
            return Ok(None);
        };
        let Some(was_lost) = self.fence(&link, (lane, epoch), trusts).await? else {
            return Ok(None);
        };
        let (now, seen) = read_lanes(redis, keys, &[lane]).await?;
        if trusts.is_none() {
            apart::examine(&self.stores, &seen).await?;
        }
        let in_redis = seen.first().map_or(0, |(_, seen)| seen.accepted);
        if let Some(epoch) = begun.broken_off {
            self.remove_unfinished(&link, lane, epoch).await?;
        }
        let mut outcome = Outcome { lost: begun.lost.0, ..Outcome::default() };
        let mut attempt = Attempt {
            link: &link,
            lane,
            epoch,
            trusts,
            closed_at: begun.closed_at,
            unwritten: self.unwritten(lane, epoch, &mut outcome).await?,
            log: InFlight::read(&self.stores, lane).await?,
            is_drained: false,
            kept: Vec::new(),
            put_aside: Vec::new(),
            outcome,
        };
        if was_lost {
            self.drain(&mut attempt).await?;
        }
        // A Redis that went back in time may hold archived sales again.
        stock::remove_again(pool, lane).await?;
        for coupon in stock::loaded_in(pool, lane).await? {
            self.recover_sale(&mut attempt, coupon).await?;
        }
        self.take_others(&mut attempt).await?;
        self.open(attempt, (in_redis, now), last_seen).await
    }

    /// Closes the lane in Redis. Returns whether the lane or its log was lost; `None` if this recovery has to end.
    async fn fence(
        &self,
        link: &Link,
        (lane, epoch): (Lane, i64),
        trusts: Option<Trust>,
    ) -> Result<Option<bool>, Failure> {
        let identity = installation::identity(&self.stores.pool).await?;
        let has_decided = trusts.is_some();
        match self.scripts.fence(link, (lane, epoch), GROUP, &identity, has_decided).await? {
            Fenced::Closed => Ok(Some(false)),
            Fenced::WasLost => Ok(Some(true)),
            Fenced::MovedAside(moved) => {
                tracing::error!(%lane, epoch, moved, "ALARM: a key of another type stood in the place of the order log; it has this name now, and the log is begun anew");
                Ok(Some(true))
            }
            // Redis has a higher epoch: another recovery has raised it, or Postgres went back. In the latter case,
            // Postgres still has our epoch.
            Fenced::Ahead if table::epoch(&self.stores.pool, lane).await? == Some(epoch) => {
                let (_, seen) =
                    read_lanes(self.stores.redis(lane), &self.stores.keys, &[lane]).await?;
                Err(apart::close(&self.stores, &seen, epoch).await?)
            }
            Fenced::Ahead => Ok(None),
        }
    }

    /// Keeps a sale that agrees with Postgres. For any other sale, waits for the log to be written, makes orders of the
    /// claims that Postgres doesn't know, compares once more, and builds the sale. A sale that can't be built is set
    /// aside: it keeps its older epoch, so that it stays closed alone, with its buyers.
    async fn recover_sale(
        &self,
        attempt: &mut Attempt<'_>,
        coupon: CouponId,
    ) -> Result<(), Failure> {
        let found = self.compare(attempt, coupon).await?;
        if self.keep(attempt, coupon, found.as_ref()).await? {
            return Ok(());
        }
        self.drain(attempt).await?;
        match self.harvest_and_build(attempt, coupon).await {
            Err(failure) if self.postponed.is_of_item(&failure).await? => {
                attempt.put_aside.push(coupon);
                let error = failure.to_string();
                Ok(self.postponed.note(Job::Rebuild, &[coupon.get()], &error).await?)
            }
            done => done,
        }
    }

    async fn harvest_and_build(
        &self,
        attempt: &mut Attempt<'_>,
        coupon: CouponId,
    ) -> Result<(), Failure> {
        self.require_written(attempt, coupon).await?;
        let found = self.compare(attempt, coupon).await?;
        let Attempt { link, epoch, trusts, .. } = *attempt;
        let before = (attempt.outcome.harvested, attempt.outcome.unwritten);
        let believes = trusts != Some(Trust::Postgres);
        if let Some((_, compared)) = found.filter(|_| believes) {
            attempt.outcome.harvested +=
                self.harvester.take(coupon, epoch, compared.lost, &mut attempt.outcome).await?;
        }
        let unwritten = of_sale(&attempt.unwritten, coupon);
        attempt.outcome.unwritten +=
            self.harvester.take(coupon, epoch, unwritten, &mut attempt.outcome).await?;
        if before != (attempt.outcome.harvested, attempt.outcome.unwritten) {
            let found = self.compare(attempt, coupon).await?;
            if self.keep(attempt, coupon, found.as_ref()).await? {
                return Ok(());
            }
        }
        // The switch removes what only Redis knew.
        records::note_lost(&self.stores.pool, attempt.lane, epoch, &attempt.outcome.lost).await?;
        self.builder.build(link, coupon, epoch, &mut attempt.outcome).await
    }

    /// Takes unwritten claims of sales that Redis doesn't have, because they are archived or a Postgres that went back
    /// doesn't know them. Those without a row become dead letters.
    async fn take_others(&self, attempt: &mut Attempt<'_>) -> Result<(), Failure> {
        let loaded = stock::loaded_in(&self.stores.pool, attempt.lane).await?;
        let of_others = attempt.unwritten.iter().map(|claim| claim.coupon);
        let others: BTreeSet<CouponId> =
            of_others.filter(|coupon| !loaded.contains(coupon)).collect();
        for coupon in others {
            let unwritten = of_sale(&attempt.unwritten, coupon);
            attempt.outcome.unwritten +=
                self.harvester.take(coupon, attempt.epoch, unwritten, &mut attempt.outcome).await?;
        }
        Ok(())
    }

    /// Compares a sale: whether its terms are as noted, and its buyers. `None` if Redis doesn't have it, or it can't be
    /// read.
    async fn compare(
        &self,
        attempt: &Attempt<'_>,
        coupon: CouponId,
    ) -> Result<Option<(bool, Compared)>, Failure> {
        let compared = async {
            let Some((terms, count)) = compare::facts(&self.stores, coupon).await? else {
                return Ok(None);
            };
            if count.total.is_none() {
                return Ok(None);
            }
            let compared = compare::buyers(&self.stores, coupon, Some(&attempt.log)).await?;
            Ok(Some((compare::is_as_noted(coupon, &terms, &count), compared)))
        };
        match compared.await {
            // What can't be read is replaced by what Postgres has.
            Err(failure) if Failure::is_of_item(&failure) => Ok(None),
            compared => compared,
        }
    }

    /// True for a sale that Redis has kept. Reports superseded unwritten claims.
    async fn keep(
        &self,
        attempt: &mut Attempt<'_>,
        coupon: CouponId,
        found: Option<&(bool, Compared)>,
    ) -> Result<bool, Failure> {
        let is_same = found.is_some_and(|(as_noted, compared)| *as_noted && compared.is_same());
        if !is_same || attempt.trusts == Some(Trust::Postgres) {
            return Ok(false);
        }
        let unwritten = of_sale(&attempt.unwritten, coupon);
        let (superseded, unknown) = self.harvester.sort_out(coupon, unwritten).await?;
        if !are_buyers(&self.stores, coupon, &unknown).await? {
            return Ok(false);
        }
        attempt.outcome.add_lost(superseded);
        attempt.outcome.kept += 1;
        attempt.kept.push(coupon);
        Ok(true)
    }

    /// Builds the lists of unpaid orders, and opens the lane: in Postgres first.
    async fn open(
        &self,
        attempt: Attempt<'_>,
        (in_redis, now): (i64, DateTime<Utc>),
        last_seen: LastSeen,
    ) -> Result<Option<LastSeen>, Failure> {
        let Stores { pool, .. } = &self.stores;
        let Attempt { link, lane, epoch, ref kept, .. } = attempt;
        let in_flight = compare_lane(&self.stores, &attempt.log).await?;
        self.lists.build(link, (lane, epoch), &in_flight).await?;
        let mut outcome = attempt.outcome.clone();
        let waiting = i64::try_from(in_flight.len()).unwrap_or(i64::MAX);
        // A report that can't be made doesn't keep the lane closed.
        outcome.unknown =
            self.unknown(&attempt, in_redis, last_seen, waiting).await.unwrap_or_default();
        if !table::open(pool, lane, epoch).await? {
            return Ok(None);
        }
        let closed_for = records::end(pool, lane, epoch, &outcome).await?;
        let second = self.last_second(&attempt).await?;
        let accepted = in_redis.max(last_seen.accepted);
        let all_written = attempt.log.is_settled.then_some(accepted);
        let opened = self.scripts.open(link, (lane, epoch), kept, second, all_written).await?;
        self.lanes.read_now().await?;
        self.tell((lane, epoch, opened), outcome, closed_for);
        let Attempt { mut unwritten, put_aside, .. } = attempt;
        unwritten.retain(|claim| !put_aside.contains(&claim.coupon));
        unwritten::table::settle(pool, &unwritten).await?;
        Ok(Some(LastSeen { accepted, settled: all_written.map(|orders| (orders, now)) }))
    }

    /// Reports a recovery in the metrics, and in the log if the lane is open.
    fn tell(
        &self,
        (lane, epoch, opened): (Lane, i64, bool),
        outcome: Outcome,
        closed_for: Option<Duration>,
    ) {
        let Outcome { kept, built, buyers, harvested, unwritten, absent, unknown, lost } = outcome;
        let unknown = unknown.unwrap_or(0);
        let of = |reason: &str| lost.iter().filter(|claim| claim.reason == reason).count();
        let counts = [
            (RecoveryFate::Unwritten, u64::try_from(unwritten).unwrap_or(0)),
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
        tracing::warn!(%lane, epoch, kept, built, buyers, harvested, unwritten, absent, unknown, lost = lost.len(), "the lane is open again");
    }

    /// The unwritten claims of living processes. Waits for each process, up to [`limits::HAND_IN_WAIT_MAX`].
    async fn unwritten(
        &self,
        lane: Lane,
        epoch: i64,
        outcome: &mut Outcome,
    ) -> Result<Vec<UnwrittenClaim>, Failure> {
        let pool = &self.stores.pool;
        unwritten::table::forget_dead(pool).await?;
        let deadline = Instant::now() + limits::HAND_IN_WAIT_MAX;
        loop {
            let missing =
                unwritten::table::missing(pool, lane, epoch, limits::PROCESS_SILENCE_MAX).await?;
            if missing.is_empty() || Instant::now() >= deadline {
                outcome.absent = missing;
                return Ok(unwritten::table::open(pool, lane).await?);
            }
            sleep(limits::RECOVERY_HAND_IN_PERIOD).await;
        }
    }

    /// Waits until the workers have written the order log: as long as they make progress, and for
    /// [`limits::RECOVERY_LOG_MAX`] at most. Only once in an attempt.
    async fn drain(&self, attempt: &mut Attempt<'_>) -> Result<(), Failure> {
        if attempt.is_drained {
            return Ok(());
        }
        let (redis, keys) = (self.stores.redis(attempt.lane), &self.stores.keys);
        let begun = Instant::now();
        let (mut moved_at, mut last) = (begun, None);
        loop {
            let state = LogState::of(redis, keys, attempt.lane).await?;
            let now = Instant::now();
            if last != Some(state) {
                (moved_at, last) = (now, Some(state));
            }
            if state.is_settled()
                || now >= moved_at + limits::RECOVERY_LOG_STILL
                || now >= begun + limits::RECOVERY_LOG_MAX
            {
                attempt.is_drained = true;
                attempt.log = InFlight::read(&self.stores, attempt.lane).await?;
                return Ok(());
            }
            sleep(limits::RECOVERY_CHECK_PERIOD).await;
        }
    }

    /// Fails while claims of this sale wait in the log.
    async fn require_written(
        &self,
        attempt: &Attempt<'_>,
        coupon: CouponId,
    ) -> Result<(), Failure> {
        let Stores { pool, .. } = &self.stores;
        if compare::unknown(pool, coupon, attempt.log.of(coupon).collect()).await?.is_empty() {
            return Ok(());
        }
        if let Some(session) = stock::lock_holder(pool, coupon).await? {
            return Err(Failure::Locked(coupon, session));
        }
        tracing::error!(lane = %attempt.lane, "the lane can't be recovered before its order log is written: does a worker run, and does Postgres answer?");
        Err(Failure::NoReply)
    }

    /// Removes what the attempt of this epoch has left behind because its process died.
    async fn remove_unfinished(&self, link: &Link, lane: Lane, epoch: i64) -> Result<(), Failure> {
        self.lists.remove(link, lane, epoch).await?;
        for coupon in stock::loaded_in(&self.stores.pool, lane).await? {
            self.builder.remove_unfinished(coupon, epoch).await?;
        }
        Ok(())
    }

    /// The second, since 2022, after which the lane's next order ids begin, so that the later of a user's two claims
    /// has the higher id: Postgres's time, or the latest time of an order, dead letter, unwritten claim or entry in the
    /// log. Times too far ahead don't count, since their claims become no orders.
    async fn last_second(&self, attempt: &Attempt<'_>) -> Result<i64, Failure> {
        let Attempt { lane, ref unwritten, ref log, .. } = *attempt;
        let pool = &self.stores.pool;
        let now = postgres::time(pool).await?;
        let ahead = (now, now + limits::ORDER_AHEAD_MAX);
        let rows = live::highest_between(pool, lane, ahead).await?;
        let letters = dead_letter::highest_between(pool, lane, ahead).await?;
        let accepted = unwritten.iter().map(|claim| claim.order).chain(log.orders());
        let seen = accepted.filter(|order| order.time() < ahead.1).chain(rows).chain(letters);
        let last = seen.map(OrderId::second).max().unwrap_or_default();
        Ok(last.max(order_id::second_at(now)))
    }

    /// Lower bound of the claims that Redis had accepted by the leader's last check, and that neither a store nor a
    /// process knows, now that unwritten claims and buyers are orders. Claims accepted after that check aren't counted,
    /// and known ones among them may hide as many unknown ones. `None` if no bound is known.
    async fn unknown(
        &self,
        attempt: &Attempt<'_>,
        in_redis: i64,
        last_seen: LastSeen,
        waiting: i64,
    ) -> Result<Option<i64>, Failure> {
        if attempt.trusts == Some(Trust::Postgres) {
            return Ok(None);
        }
        if last_seen.accepted > 0 && in_redis >= last_seen.accepted {
            return Ok(Some(0));
        }
        let pool = &self.stores.pool;
        let is_recent = |at: &DateTime<Utc>| {
            (attempt.closed_at - at).to_std().unwrap_or_default() < limits::SETTLED_AGE_MAX
        };
        let Some((settled, at)) = last_seen.settled.filter(|(_, at)| is_recent(at)) else {
            return Ok((attempt.outcome.built == 0).then_some(0));
        };
        let rows = live::count_since(pool, attempt.lane, at, attempt.closed_at).await?;
        let letters = dead_letter::count_since(pool, attempt.lane, at).await?;
        // Claims without a unit have a dead letter, which is counted.
        let is_listed = |lost: &&LostClaim| [SUPERSEDED, REFUSED].contains(&&*lost.reason);
        let listed = attempt.outcome.lost.iter().filter(is_listed).count();
        let known = rows + letters + waiting + i64::try_from(listed).unwrap_or(i64::MAX);
        Ok(Some((last_seen.accepted - settled - known).max(0)))
    }
}

/// The claims of the log that Postgres doesn't know.
async fn compare_lane(stores: &Stores, log: &InFlight) -> Result<Vec<AcceptedClaim>, Failure> {
    let mut unknown = Vec::new();
    for coupon in log.coupons() {
        unknown.extend(compare::unknown(&stores.pool, coupon, log.of(coupon).collect()).await?);
    }
    Ok(unknown)
}

fn of_sale(unwritten: &[UnwrittenClaim], coupon: CouponId) -> Vec<AcceptedClaim> {
    let of_sale = unwritten.iter().filter(|claim| claim.coupon == coupon);
    of_sale.map(|claim| (claim.user, claim.order)).collect()
}

/// Whether each of these users is a buyer by this order. False for a sale that can't be read.
async fn are_buyers(
    stores: &Stores,
    coupon: CouponId,
    promises: &[AcceptedClaim],
) -> Result<bool, Failure> {
    for page in promises.chunks(live::PAGE) {
        let users = page.iter().map(|(user, _)| *user);
        match buyers::orders_of(stores.redis(coupon.lane()), &stores.keys, coupon, users).await {
            Err(failure) if failure.is_of_item() => return Ok(false),
            held => {
                if page.iter().zip(held?).any(|((_, order), held)| held != Some(*order)) {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}
