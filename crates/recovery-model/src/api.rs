//! The API process and its unwritten claims.

use crate::settings::{Guard, Settings};
use crate::state::{Call, Set, State, one, only_if};

/// Attempts of recoveries after which Postgres's clock has moved on. Ids carry the epoch modulo this, in the service
/// 64.
const EPOCHS: u8 = 2;
/// Ids of a second.
const IDS: u8 = 4;

/// The second of Postgres's clock.
pub fn second_of(epoch: u8) -> u8 {
    epoch / EPOCHS
}

pub fn second_in(id: u8) -> u8 {
    id / (EPOCHS * IDS)
}

/// Rule 2, but for the log: what each script asks of its lane.
pub fn is_open_for(rules: &Settings, s: &State, epoch: u8) -> bool {
    let lane = &s.redis.lane;
    let has_replid = lane.replid == s.replid || !rules.has(Guard::ScriptsCompareReplid);
    lane.open && lane.epoch == epoch && has_replid
}

/// Rule 2: and of its sale.
pub fn sells_to(rules: &Settings, s: &State, epoch: u8, sale: usize) -> bool {
    is_open_for(rules, s, epoch) && s.redis.sales[sale].epoch == epoch
}

/// The claim script, for one claim.
pub fn claim(rules: &Settings, s: &mut State, user: u8, sale: usize) -> Option<()> {
    let (lane, found, epoch) = (s.redis.lane, s.redis.sales[sale], s.api.epoch);
    let buyers = found.buyers?;
    only_if(s.api.call.is_none() && s.api.open && found.load != 0 && !found.loading)?;
    only_if(lane.replid == s.replid || !rules.has(Guard::ScriptsCompareReplid))?;
    only_if((lane.epoch, found.epoch) == (epoch, epoch) || !rules.has(Guard::ClaimReadsEpoch))?;
    only_if(lane.open || !rules.has(Guard::ClaimReadsState))?;
    only_if(s.redis.log.is_some() || !rules.has(Guard::ClaimNeedsLog))?;
    let call = Call { order: 0, epoch, noted: false, answered: false };
    let held = s.of_user(user, sale) & buyers;
    if held != 0 {
        s.api.call = Some(Call { order: held.trailing_zeros() as usize, ..call });
        return only_if(s.answered & held == 0);
    }
    only_if(!found.ended && found.stock > 0 && s.granted < rules.claims)?;
    s.require(s.pg.archived & one(sale) == 0, "an archived sale sells nothing");
    let order = usize::from(s.granted);
    let id = if rules.ids { make_id(rules, s) } else { s.granted };
    (s.users[order], s.of[order], s.ids[order]) = (user, sale as u8, id);
    s.granted += 1;
    let rivals = s.rivals(order);
    let is_fine =
        |earlier: usize| s.ids[earlier] < id || s.ids[earlier] != id && rivals & one(earlier) == 0;
    s.require((0..order).all(is_fine), "ids are unique, and rise for each user");
    s.redis.sales[sale].stock -= 1;
    s.redis.sales[sale].buyers = Some(buyers | one(order));
    s.redis.log = Some(s.redis.log.unwrap_or(0) | one(order));
    s.redis.appended = s.granted;
    s.redis.unpaid |= one(order);
    s.api.call = Some(Call { order, ..call });
    Some(())
}

/// An id: second, epoch, and count.
fn make_id(rules: &Settings, s: &mut State) -> u8 {
    let now = second_of(s.pg.epoch).saturating_add_signed(s.clock);
    let lane = &mut s.redis.lane;
    if now > lane.second {
        (lane.second, lane.used) = (now, 0);
    }
    if lane.used == IDS {
        (lane.second, lane.used) = (lane.second + 1, 0);
    }
    lane.used += 1;
    let epoch = if rules.has(Guard::EpochInIds) { lane.epoch % EPOCHS } else { 0 };
    (lane.second * EPOCHS + epoch) * IDS + lane.used - 1
}

/// Rule 8: the reply is read, and its unwritten claim noted.
pub fn note_claim(rules: &Settings, s: &mut State) -> Option<()> {
    let call = s.api.call.filter(|call| !call.noted)?;
    only_if(call.answered || rules.has(Guard::NotedBeforeAnswer))?;
    s.api.book |= one(call.order);
    s.api.call = (!call.answered).then_some(Call { noted: true, ..call });
    Some(())
}

/// Rule 8: the user is told, if the lane is as it was at the call.
pub fn answer(rules: &Settings, s: &mut State) -> Option<()> {
    let call = s.api.call.filter(|call| !call.answered)?;
    let is_late = !rules.has(Guard::NotedBeforeAnswer);
    only_if(call.noted || is_late)?;
    if is_late || s.api.epoch == call.epoch && s.api.open {
        s.answered |= one(call.order);
    }
    s.api.call = is_late.then_some(Call { answered: true, ..call });
    Some(())
}

/// The state of the lane is read from Postgres.
pub fn refresh(_: &Settings, s: &mut State) -> Option<()> {
    let before = s.api;
    (s.api.epoch, s.api.open) = (s.pg.epoch, s.pg.open);
    only_if(s.api != before)
}

/// Rule 9: unwritten claims are handed in until Postgres has noted that for the epoch. Another epoch than Postgres's is
/// refused: in one that has gone back, the note would count for a later recovery that reaches the same epoch again.
pub fn hand_in(rules: &Settings, s: &mut State) -> Option<()> {
    only_if(s.pg.handed_in < s.api.epoch && s.api.epoch == s.pg.epoch)?;
    if rules.has(Guard::HandedIn) {
        s.pg.unwritten |= s.api.book & !s.pg.known();
    }
    (s.pg.handed_in, s.api.seen) = (s.api.epoch, 0);
    Some(())
}

/// Rule 9: the log is seen acknowledged past unwritten claims.
pub fn see_log(rules: &Settings, s: &mut State) -> Option<()> {
    let (log, before) = (s.redis.log?, s.api);
    let past = !log & ((1u16 << s.redis.appended) - 1) as Set;
    s.api.seen |= s.api.book & past;
    only_if(rules.drops && s.api != before)
}

/// Rule 9: they are dropped, if rule 2 still holds, asked afterwards.
pub fn drop_unwritten(rules: &Settings, s: &mut State) -> Option<()> {
    only_if(is_open_for(rules, s, s.api.epoch) || !rules.has(Guard::ServerAskedLast))?;
    only_if(s.api.seen != 0 && s.pg.handed_in >= s.api.epoch)?;
    let safe = s.pg.known() | s.pg.unwritten | s.superseded | s.ended | !s.answered;
    s.require(s.api.seen & !safe == 0 || s.went_back, "a dropped claim is in a table");
    s.api.book &= !s.api.seen;
    s.api.seen = 0;
    Some(())
}
