//! Promises that hold in each state, and at rest. Those of single steps stand with the steps.

use crate::recovery;
use crate::settings::Settings;
use crate::state::{State, Trust, count};

/// Promises that hold in each state.
pub fn always(rules: &Settings, s: &mut State) {
    s.ended |= s.pg.closed | s.pg.discarded;
    s.require(s.pg.live & s.ended == 0, "a closed or deleted order stays closed");
    for sale in 0..rules.sales {
        let sold = count(s.pg.live & s.of_sale(sale));
        s.require(sold <= rules.units, "live orders are at most the units");
        let has_one = (0..rules.users).all(|user| count(s.pg.live & s.of_user(user, sale)) <= 1);
        s.require(has_one, "a user has one live order of a sale");
    }
    if is_open(s) && !s.unseen {
        s.broken = s.broken.or(disagreement(rules, s));
    }
}

/// True when the lane is open in both stores, and the Redis is the approved one.
fn is_open(s: &State) -> bool {
    let lane = &s.redis.lane;
    let is_ours = (lane.epoch, lane.open, lane.replid) == (s.pg.epoch, true, s.replid);
    s.pg.open && is_ours && s.redis.log.is_some()
}

/// What isn't in Redis as Postgres says. A sale that is lost, loading or of another epoch sells nothing.
fn disagreement(rules: &Settings, s: &State) -> Option<&'static str> {
    let sells = |sale: usize| {
        let found = &s.redis.sales[sale];
        let is_whole = found.load != 0 && !found.loading && found.buyers.is_some();
        is_whole && found.epoch == s.pg.epoch && recovery::is_on(s, sale)
    };
    let all = rules.with_all_guards();
    let is_kept = |sale| !sells(sale) || recovery::is_kept(&all, s, sale, 0);
    if !(0..rules.sales).all(is_kept) {
        return Some("an open sale agrees with Postgres");
    }
    if (0..rules.sales).any(|sale| sells(sale) && s.redis.sales[sale].stock < 0) {
        return Some("buyers are at most the units");
    }
    let unpaid = s.pg.live & !s.pg.paid | s.redis.log.unwrap_or(0) & !s.pg.known();
    let leaving = s.pg.places | s.pg.returns | s.retry.map_or(0, |(letter, _)| 1 << letter);
    let has_all = unpaid & !s.pg.places & !s.redis.unpaid == 0;
    let has_no_other = s.redis.unpaid & !(unpaid | leaving) == 0;
    (rules.lists && !(has_all && has_no_other)).then_some("lists of unpaid orders agree")
}

/// Promises that hold at rest: when no process has anything to do, and no further fault comes.
pub fn at_rest(rules: &Settings, s: &State) -> Option<&'static str> {
    let sells = |sale: usize| {
        let found = &s.redis.sales[sale];
        let is_there = found.load != 0 && !found.loading && found.buyers.is_some();
        is_there && found.epoch == s.pg.epoch || s.pg.archived & (1 << sale) != 0
    };
    if !is_open(s) || s.pg.trust != Trust::Both || !(0..rules.sales).all(sells) {
        return Some("nothing stays closed");
    }
    // A memory that went back unseen: its unwritten claims are handed in at the next closing.
    let remembered = if s.unseen { s.api.book } else { 0 };
    let kept = s.pg.known() | s.superseded | s.excused | s.ended | remembered;
    if s.answered & !kept != 0 {
        return Some("each answered claim is an order, a letter, or reported");
    }
    disagreement(rules, s)
}
