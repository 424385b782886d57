//! A dead letter that is tried again, as `Retries::retry` does. The operator asks again until there is an answer.

use crate::settings::{Guard, Settings};
use crate::state::{Broken, Orders, Retry, State};

/// An operator wants an open letter to be tried again.
pub fn ask(state: &State, letter: u8) -> Option<State> {
    let mut next = *state;
    let is_open = state.postgres.letters.less(state.postgres.rows()).has(letter);
    if state.retries_left == 0 || state.retry.is_some() || !is_open {
        return None;
    }
    next.retries_left -= 1;
    next.retry = Some(Retry { letter, admitted: None });
    Some(next)
}

/// A claim whose user has a newer order stays; then `lua/admit.lua`. Refused while the lane is recovering.
pub fn admit(settings: &Settings, state: &State) -> Option<State> {
    let mut next = *state;
    let Retry { letter, admitted: None } = state.retry? else { return None };
    let stored = &state.postgres;
    let (lane, sale) = (state.redis.lane?, state.redis.whole_sale()?);
    let is_approved = stored.life == state.life || !settings.has(Guard::LifeCompared);
    let is_current = (lane.epoch, sale.epoch) == (stored.epoch, stored.epoch);
    if !(stored.open && is_approved && lane.open && is_current) {
        return None;
    }
    let user = state.user(letter);
    let newer = Orders::since(letter + 1).common(stored.rows());
    let is_superseded = !state.of_user(newer, user).is_empty();
    let held = state.of_user(state.redis.buyers(), user);
    let is_held = held.has(letter);
    let is_refused = !is_held && (!held.is_empty() || sale.stock < 1);
    if is_superseded || stored.rows().has(letter) {
        next.retry = None;
        return Some(next);
    }
    if settings.has(Guard::RetryAdmitted) {
        if is_refused {
            next.retry = None;
            return Some(next);
        }
        if !is_held {
            next.redis.sale.as_mut()?.stock -= 1;
            next.redis.buyers_mut()?.insert(letter);
        }
    }
    next.retry = Some(Retry { letter, admitted: Some(stored.epoch) });
    Some(next)
}

/// The order is written, and the letter closed; or the letter stays, and holds the unit.
pub fn write(settings: &Settings, state: &State) -> Option<State> {
    let mut next = *state;
    let Retry { letter, admitted: Some(epoch) } = state.retry? else { return None };
    if epoch != state.postgres.epoch && settings.has(Guard::WriterHoldsEpoch) {
        next.retry = Some(Retry { letter, admitted: None });
        return Some(next);
    }
    if epoch != state.postgres.epoch {
        next.break_promise(Broken::OlderEpoch);
    }
    let has_order = !state.of_user(state.postgres.live, state.user(letter)).is_empty();
    let stored = &mut next.postgres;
    if !has_order && stored.live.count() < settings.units as i8 {
        stored.live.insert(letter);
        stored.letters = stored.letters.less(Orders::one(letter));
        stored.holding = stored.holding.less(Orders::one(letter));
    } else {
        stored.holding.insert(letter);
    }
    next.retry = None;
    Some(next)
}
