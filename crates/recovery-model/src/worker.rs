//! Steps of the worker: it writes what is in the order log, and returns units.

use crate::settings::{Guard, Hole, Settings};
use crate::state::{Broken, Orders, State, Worker};

/// Entries are read, under the epoch of Postgres; with the repair, under that of Redis.
pub fn read(settings: &Settings, state: &State) -> Option<State> {
    let mut next = *state;
    if !state.worker.batch.is_empty() || state.redis.log.is_empty() {
        return None;
    }
    next.worker.batch = state.redis.log;
    let epoch = state.postgres.epoch;
    // Such a batch would be refused: nothing is lost if it isn't read.
    if settings.repairs(Hole::ReadBeforeFence) && state.redis.lane?.epoch != epoch {
        return None;
    }
    next.worker.epoch = epoch;
    next.worker.committed = false;
    Some(next)
}

/// One transaction, which holds the epoch.
pub fn commit(settings: &Settings, state: &State) -> Option<State> {
    let mut next = *state;
    let Worker { batch, epoch, committed, .. } = state.worker;
    if batch.is_empty() || committed {
        return None;
    }
    let is_current = epoch == state.postgres.epoch;
    if !is_current && settings.has(Guard::WriterHoldsEpoch) {
        next.worker.batch = Orders::default();
        return Some(next);
    }
    write(settings, &mut next, batch);
    if !is_current && next.postgres != state.postgres {
        next.break_promise(Broken::OlderEpoch);
    }
    next.worker.committed = true;
    Some(next)
}

/// Rows for these claims in the order of their ids; dead letters where the user has a live order, or no unit is left.
pub fn write(settings: &Settings, state: &mut State, claims: Orders) {
    for order in claims.less(state.postgres.rows()).ids() {
        let has_order = !state.of_user(state.postgres.live, state.user(order)).is_empty();
        let stored = &mut state.postgres;
        if !has_order && stored.live.count() < settings.units as i8 {
            stored.live.insert(order);
        } else if !stored.letters.has(order) {
            stored.letters.insert(order);
            stored.holding.insert(order);
        }
    }
}

/// Closed orders that were taken for unknown ones become live again. No guard lets one come here.
pub fn write_again(settings: &Settings, state: &mut State, closed: Orders) {
    for order in closed.ids() {
        if state.postgres.live.count() < settings.units as i8 {
            state.postgres.live.insert(order);
        }
    }
}

/// The entries of a committed batch leave the group.
pub fn acknowledge(state: &State) -> Option<State> {
    let mut next = *state;
    let Worker { batch, committed, .. } = state.worker;
    if batch.is_empty() || !committed {
        return None;
    }
    if !state.postgres.committed().holds(batch) {
        next.break_promise(Broken::AcknowledgedUnwritten);
    }
    next.redis.log = state.redis.log.less(batch);
    next.worker.batch = Orders::default();
    next.worker.committed = false;
    Some(next)
}

/// `lua/give_back.lua` for the order that has waited longest.
pub fn give_back(settings: &Settings, state: &State) -> Option<State> {
    let mut next = *state;
    let order = state.postgres.returns.ids().next()?;
    let (lane, sale) = (state.redis.lane?, state.redis.sale?);
    let epoch = state.postgres.epoch;
    if state.worker.returned.is_some() || !lane.open || (lane.epoch, sale.epoch) != (epoch, epoch) {
        return None;
    }
    let compares = settings.has(Guard::GiveBackComparesOrder);
    let held = match compares {
        true => Orders::one(order).common(state.redis.buyers()),
        false => state.of_user(state.redis.buyers(), state.user(order)),
    };
    if !held.is_empty() {
        if state.redis.given_back.has(order) {
            next.break_promise(Broken::ReturnedTwice);
        }
        let buyers = next.redis.buyers_mut()?;
        *buyers = buyers.less(held);
        next.redis.sale.as_mut()?.stock += 1;
        next.redis.given_back.insert(order);
    }
    next.worker.returned = Some((order, epoch));
    Some(next)
}

/// The return of a unit is closed in Postgres.
pub fn close_return(settings: &Settings, state: &State) -> Option<State> {
    let mut next = *state;
    let (order, epoch) = state.worker.returned?;
    next.worker.returned = None;
    if settings.repairs(Hole::ReturnClosedLate) && epoch != state.postgres.epoch {
        return Some(next);
    }
    next.postgres.returns = state.postgres.returns.less(Orders::one(order));
    next.postgres.returned.insert(order);
    Some(next)
}
