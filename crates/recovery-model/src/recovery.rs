//! Closing a lane, and the steps of a recovery.

use crate::settings::{Guard, Settings};
use crate::state::{Recovery, Sale, Set, State, Trust, count, one, only_if};
use crate::{api, worker};

/// Highest epoch; no run may need more.
const EPOCH_MAX: u8 = 20;

/// A step of a recovery. Returns the place of the next one, 0 for the end; or None while it has to wait.
type Step = fn(&Settings, &mut State, &mut Recovery) -> Option<usize>;

/// Rule 10, in order.
const STEPS: [Step; 9] =
    [begin, fence, assess, drain, harvest, fill, switch, open_in_postgres, open_in_redis];
const OVER: usize = 0;
const ASSESS: usize = 2;
const FILL: usize = 5;
const OPEN_IN_POSTGRES: usize = 7;
const OPEN_IN_REDIS: usize = 8;

/// Rule 4: the epoch is raised in Postgres.
fn raise(s: &mut State) {
    s.pg.epoch += 1;
    s.pg.open = false;
    s.require(s.pg.epoch < EPOCH_MAX, "recoveries come to an end");
}

/// Rule 5: a process closes an open lane that it finds in disorder.
pub fn close(rules: &Settings, s: &mut State) -> Option<()> {
    let leading = &s.recoveries[s.leader];
    let is_opening = leading.step == OPEN_IN_REDIS && leading.epoch == s.pg.epoch;
    only_if(s.pg.open && !is_opening && !is_in_order(rules, s))?;
    raise(s);
    Some(())
}

/// Rules 5 and 6: what a look sees in INFO, in the lane's hash and in Postgres, and what scripts tell.
fn is_in_order(rules: &Settings, s: &State) -> bool {
    let lane = &s.redis.lane;
    let has_sale = |number: usize| {
        let Sale { load, epoch, buyers, .. } = s.redis.sales[number];
        let has_load = load == s.pg.loads[number] || !rules.has(Guard::LoadIdCompared);
        !is_on(s, number) || load != 0 && has_load && epoch == s.pg.epoch && buyers.is_some()
    };
    let late = s.pg.unwritten & !s.pg.known() & !s.redis.buyers() & !s.redis.log.unwrap_or(0);
    let has_late = late & !s.superseded_among(late) != 0;
    let went_back = s.pg.run != s.run || worker::is_missing(s, lane.last);
    (lane.epoch, lane.open, lane.replid) == (s.pg.epoch, true, s.replid)
        && s.redis.log.is_some()
        && (0..2).all(has_sale)
        && !(has_late && rules.has(Guard::LateClaimCloses))
        && !(went_back && rules.has(Guard::LookAsksLast))
}

/// True for a sale that Postgres has noted as loaded, and not as archived.
pub fn is_on(s: &State, sale: usize) -> bool {
    s.pg.loads[sale] != 0 && s.pg.archived & one(sale) == 0
}

/// Late unwritten claims that are in a store or superseded are done with.
pub fn settle_unwritten(rules: &Settings, s: &mut State) -> Option<()> {
    only_if(s.pg.open && s.pg.unwritten != 0 && is_in_order(rules, s))?;
    settle(s, s.pg.unwritten);
    Some(())
}

/// Those that are superseded are reported, also where the sale was kept; then the claims are gone.
fn settle(s: &mut State, unwritten: Set) {
    s.superseded |= s.superseded_among(unwritten & !s.pg.known());
    s.pg.unwritten &= !unwritten;
}

/// Rule 19: a comparison that finds a sale in disorder closes the lane.
pub fn compare(rules: &Settings, s: &mut State) -> Option<()> {
    let is_kept = |sale| !is_on(s, sale) || is_kept(rules, s, sale, 0);
    only_if(s.pg.open && is_in_order(rules, s) && !(0..2).all(is_kept))?;
    only_if(rules.has(Guard::ComparisonCloses))?;
    raise(s);
    Some(())
}

/// The next step of the recovery of this process.
pub fn step(rules: &Settings, s: &mut State, number: usize) -> Option<()> {
    let mut recovery = s.recoveries[number];
    only_if(recovery.step != OVER || s.leader == number)?;
    let next = STEPS[recovery.step](rules, s, &mut recovery)?;
    recovery.step = next;
    s.recoveries[number] = if next == OVER { Recovery::default() } else { recovery };
    Some(())
}

fn begin(rules: &Settings, s: &mut State, recovery: &mut Recovery) -> Option<usize> {
    only_if(!s.pg.open && s.pg.trust != Trust::Asked)?;
    raise(s);
    recovery.epoch = s.pg.epoch;
    recovery.place = if rules.has(Guard::EpochInShardNames) { s.leader } else { 0 };
    Some(OVER + 1)
}

/// The script that closes the lane in Redis, begins its log, and notes the replication ID.
fn fence(rules: &Settings, s: &mut State, recovery: &mut Recovery) -> Option<usize> {
    recovery.is_fresh = true;
    let before = s.redis.lane;
    let is_undecided = s.pg.trust == Trust::Both;
    let is_missing = is_undecided && worker::is_missing(s, before.last);
    if before.epoch >= recovery.epoch && rules.has(Guard::EpochAheadAsked)
        || is_missing && rules.has(Guard::RecoveryAsksLast)
    {
        // Another recovery has begun; or Postgres went back, and an operator decides which store is right.
        if s.pg.epoch == recovery.epoch {
            s.pg.trust = Trust::Asked;
            s.require(s.went_back, "an operator is asked only if Postgres went back");
        }
        return Some(OVER);
    }
    let unasked = s.lost & !s.pg.known() & s.redis.buyers() & !s.redis.log.unwrap_or(0);
    let is_asked = !is_undecided || unasked == 0 || before.last == 0;
    s.require(is_asked, "an operator is asked if Postgres went back");
    if rules.has(Guard::FenceInRedis) {
        s.redis.lane.epoch = recovery.epoch;
        s.redis.lane.open = false;
        s.redis.lane.replid = s.replid;
        s.redis.lane.last = if is_undecided { before.last } else { 0 };
        s.redis.log.get_or_insert(0);
    }
    if rules.has(Guard::EpochInShardNames) {
        s.redis.beside = [None; 2];
    }
    Some(ASSESS)
}

/// True while the lane is fenced by this recovery.
fn is_ours(rules: &Settings, s: &State, recovery: &Recovery) -> bool {
    let lane = &s.redis.lane;
    lane.epoch == recovery.epoch && !lane.open || !rules.has(Guard::FenceInRedis)
}

/// Waits for the process that lives; then compares each sale with one snapshot of Postgres. Where it differs, the log
/// is written and promises are harvested; then once more.
fn assess(rules: &Settings, s: &mut State, recovery: &mut Recovery) -> Option<usize> {
    let is_overtaken = s.pg.epoch != recovery.epoch || !is_ours(rules, s, recovery);
    only_if(s.pg.handed_in >= recovery.epoch || recovery.impatient || is_overtaken)?;
    if is_overtaken {
        return Some(OVER);
    }
    if !recovery.drained {
        recovery.unwritten = s.pg.unwritten;
    }
    if !recovery.drained || rules.has(Guard::SnapshotAfterDrain) {
        recovery.snapshot = snapshot(rules, s);
    }
    adopt(rules, s, recovery);
    Some(match recovery.damaged {
        0 => OPEN_IN_POSTGRES,
        _ if recovery.drained => FILL,
        _ => ASSESS + 1,
    })
}

/// Sales that are kept take the epoch; the others are damaged.
fn adopt(rules: &Settings, s: &mut State, recovery: &mut Recovery) {
    recovery.damaged = 0;
    for sale in 0..rules.sales {
        let is_kept = s.pg.trust != Trust::Postgres && is_kept(rules, s, sale, recovery.unwritten);
        if is_on(s, sale) && is_kept {
            s.redis.sales[sale].epoch = recovery.epoch;
        } else if is_on(s, sale) {
            recovery.damaged |= one(sale);
        }
    }
}

/// Rule 12: the sale in Redis is what Postgres says.
pub fn is_kept(rules: &Settings, s: &State, sale: usize, unwritten: Set) -> bool {
    let Sale { load, stock, buyers: Some(buyers), .. } = s.redis.sales[sale] else {
        return false;
    };
    let logged = s.redis.log.unwrap_or(0) & !s.pg.known();
    let unknown = unwritten & !s.pg.known() & !s.superseded_among(unwritten);
    let promised = if rules.has(Guard::UnwrittenCompared) { unknown } else { 0 };
    let over = s.pg.closed | s.pg.discarded;
    let returning = if rules.has(Guard::ReturnOpenAsked) { over & s.pg.returns } else { over };
    (load == s.pg.loads[sale] || !rules.has(Guard::LoadIdCompared))
        && stock + count(buyers) == rules.units
        && (s.pg.live | logged | promised) & s.of_sale(sale) & !buyers == 0
        && buyers & !(s.pg.live | logged | s.pg.letters | returning) == 0
}

/// The recovery writes the log and acknowledges it: nobody else does while the lane is closed.
fn drain(rules: &Settings, s: &mut State, recovery: &mut Recovery) -> Option<usize> {
    let log = s.redis.log.unwrap_or(0);
    if !rules.has(Guard::RecoveryDrains) {
        return Some(recovery.step + 1);
    }
    if s.pg.epoch != recovery.epoch && rules.has(Guard::WriterHoldsEpoch) {
        return Some(OVER);
    }
    worker::write(rules, s, log);
    worker::take_off(s, log, recovery.epoch);
    Some(recovery.step + 1)
}

/// Rule 11: buyers and unwritten claims that Postgres doesn't know become orders, in one transaction.
fn harvest(rules: &Settings, s: &mut State, recovery: &mut Recovery) -> Option<usize> {
    if s.pg.epoch != recovery.epoch && rules.has(Guard::WriterHoldsEpoch) {
        return Some(OVER);
    }
    let believes = s.pg.trust != Trust::Postgres;
    let buyers = if believes { s.redis.buyers() & !s.archived() } else { 0 };
    for order in s.by_id(buyers | recovery.unwritten) {
        let is_superseded = s.superseded_among(one(order) & !s.pg.known()) != 0;
        if is_superseded && rules.has(Guard::Superseded) {
            s.superseded |= one(order);
            continue;
        }
        worker::write(rules, s, one(order));
        let came_back = is_superseded && s.pg.live & one(order) != 0;
        s.require(!came_back, "a claim is no order when its user has a newer one");
    }
    recovery.drained = true;
    Some(ASSESS)
}

/// Rule 13: live orders; then open letters, one for each user, as far as units go.
fn snapshot(rules: &Settings, s: &State) -> Set {
    let mut buyers = s.pg.live;
    for letter in s.by_id(s.pg.letters) {
        let has_room = count(buyers & s.of_sale(s.sale_of(letter))) < rules.units;
        let has_unit = buyers & s.rivals(letter) != 0;
        if !has_unit && (has_room || !rules.has(Guard::LettersWithinRoom)) {
            buyers |= one(letter);
        }
    }
    buyers
}

/// Buyers of the first damaged sale.
fn planned(s: &State, recovery: &Recovery) -> Set {
    recovery.snapshot & s.of_sale(recovery.damaged.trailing_zeros() as usize)
}

/// Shards are filled beside those in use.
fn fill(_: &Settings, s: &mut State, recovery: &mut Recovery) -> Option<usize> {
    let planned = planned(s, recovery);
    *s.redis.beside[recovery.place].get_or_insert(0) |= planned;
    Some(recovery.step + 1)
}

/// Rule 15: the sale that was built takes the place of the one in use.
fn switch(rules: &Settings, s: &mut State, recovery: &mut Recovery) -> Option<usize> {
    if !is_ours(rules, s, recovery) && rules.has(Guard::SwitchComparesEpoch) {
        return Some(OVER);
    }
    let sale = recovery.damaged.trailing_zeros() as usize;
    let built = Sale::new(recovery.epoch, s.pg.loads[sale], rules.units, planned(s, recovery));
    s.redis.sales[sale] = Sale { buyers: s.redis.beside[recovery.place].take(), ..built };
    recovery.damaged &= !one(sale);
    Some(if recovery.damaged == 0 { OPEN_IN_POSTGRES } else { FILL })
}

/// Lists of unpaid orders are built, and the lane is opened in Postgres.
fn open_in_postgres(rules: &Settings, s: &mut State, recovery: &mut Recovery) -> Option<usize> {
    let has_epoch = s.pg.epoch == recovery.epoch || !rules.has(Guard::OpeningComparesEpoch);
    if !has_epoch || s.pg.open {
        return Some(OVER);
    }
    if rules.lists && rules.has(Guard::ListsBuilt) && is_ours(rules, s, recovery) {
        s.redis.unpaid = s.pg.live & !s.pg.paid | s.redis.log.unwrap_or(0) & !s.pg.known();
    }
    (s.pg.open, s.pg.run, s.pg.trust) = (true, s.run, Trust::Both);
    settle(s, recovery.unwritten);
    if recovery.is_fresh {
        (s.unseen, s.lost) = (false, 0);
    }
    Some(OPEN_IN_REDIS)
}

/// Rule 15: the lane is opened in Redis, and its second set above all that was seen.
fn open_in_redis(rules: &Settings, s: &mut State, recovery: &mut Recovery) -> Option<usize> {
    if !rules.has(Guard::FenceInRedis) {
        (s.redis.lane.epoch, s.redis.lane.replid) = (recovery.epoch, s.replid);
    } else if s.redis.lane.open {
        return Some(OVER);
    }
    let has_epoch = s.redis.lane.epoch == recovery.epoch;
    if !has_epoch && rules.has(Guard::OpeningComparesEpoch) {
        return Some(OVER);
    }
    s.redis.lane.open = true;
    if rules.ids && rules.has(Guard::OpeningRaisesSecond) {
        let seen = s.pg.known() | recovery.unwritten | s.redis.log.unwrap_or(0);
        let newest = s.by_id(seen).pop().map_or(0, |order| api::second_in(s.ids[order]));
        let above = newest.max(s.redis.lane.second).max(api::second_of(s.pg.epoch));
        (s.redis.lane.second, s.redis.lane.used) = (above + 1, 0);
    }
    Some(OVER)
}
