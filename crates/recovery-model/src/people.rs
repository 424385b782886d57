//! What users and operators do to orders and dead letters.

use crate::settings::{Guard, Settings};
use crate::state::{State, Trust, one, only_if};
use crate::{api, worker};

/// A user cancels an unpaid order: one transaction.
pub fn cancel(s: &mut State, order: usize) -> Option<()> {
    only_if(s.cancels > 0 && s.pg.live & !s.pg.paid & one(order) != 0)?;
    s.cancels -= 1;
    s.pg.live &= !one(order);
    s.pg.closed |= one(order);
    s.pg.returns |= one(order);
    Some(())
}

/// A user pays an order, which leaves the list of unpaid ones: one transaction.
pub fn pay(rules: &Settings, s: &mut State, order: usize) -> Option<()> {
    only_if(rules.lists && s.pg.live & !s.pg.paid & one(order) != 0)?;
    s.pg.paid |= one(order);
    s.pg.places |= one(order);
    Some(())
}

/// An operator discards an open letter: one transaction.
pub fn discard(s: &mut State, letter: usize) -> Option<()> {
    only_if(s.decisions > 0 && s.pg.letters & one(letter) != 0)?;
    s.decisions -= 1;
    s.pg.letters &= !one(letter);
    s.pg.discarded |= one(letter);
    s.pg.returns |= one(letter);
    Some(())
}

/// An operator wants an open letter to be tried again, and asks until there is an answer.
pub fn retry(s: &mut State, letter: usize) -> Option<()> {
    only_if(s.decisions > 0 && s.retry.is_none() && s.pg.letters & one(letter) != 0)?;
    s.decisions -= 1;
    s.retry = Some((letter, None));
    Some(())
}

/// Rule 14: the script gives the letter a unit, unless it holds one.
pub fn admit(rules: &Settings, s: &mut State) -> Option<()> {
    let (letter, None) = s.retry? else {
        return None;
    };
    let number = s.sale_of(letter);
    only_if(s.pg.open && api::sells_to(rules, s, s.pg.epoch, number))?;
    s.retry = None;
    let is_open = s.pg.letters & !s.superseded_among(s.pg.letters) & !s.archived();
    let rivals = s.rivals(letter);
    let sale = &mut s.redis.sales[number];
    let buyers = sale.buyers?;
    let is_held = buyers & one(letter) != 0;
    let can_have = is_held || buyers & rivals == 0 && sale.stock > 0;
    if is_open & one(letter) == 0 || !can_have && rules.has(Guard::RetryAdmitted) {
        return Some(());
    }
    if rules.has(Guard::RetryAdmitted) {
        sale.stock -= i8::from(!is_held);
        sale.buyers = Some(buyers | one(letter));
    }
    s.redis.unpaid |= one(letter);
    s.retry = Some((letter, Some(s.pg.epoch)));
    Some(())
}

/// Rule 7: the letter becomes an order; or it stays, and holds the unit.
pub fn write_retried(rules: &Settings, s: &mut State) -> Option<()> {
    let (letter, Some(epoch)) = s.retry? else {
        return None;
    };
    if (epoch != s.pg.epoch || !s.pg.open) && rules.has(Guard::WriterHoldsEpoch) {
        s.retry = Some((letter, None));
        return Some(());
    }
    s.retry = None;
    if s.pg.letters & one(letter) != 0 && worker::has_room(rules, s, letter) {
        s.pg.letters &= !one(letter);
        s.pg.live |= one(letter);
    } else {
        s.pg.places |= one(letter);
    }
    Some(())
}

/// Postgres went back, and an operator decides which store is right. What only the other one had is excused.
pub fn decide(s: &mut State, trust: Trust) -> Option<()> {
    only_if(s.pg.trust == Trust::Asked)?;
    s.pg.trust = trust;
    s.pg.epoch = s.pg.epoch.max(s.redis.lane.epoch) + 1;
    s.pg.open = false;
    s.excused |= s.answered & !(s.api.book | s.remembered());
    Some(())
}
