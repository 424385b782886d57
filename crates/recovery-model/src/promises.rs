//! Promises that hold at certain moments; those of single steps stand with the steps.

use crate::settings::{Fault, Guard, Settings};
use crate::state::{Broken, Lane, Orders, Postgres, State};

/// Promises that hold in each state.
pub fn always(settings: &Settings, state: &mut State) {
    let live = state.postgres.live;
    if live.count() > settings.units as i8 {
        state.break_promise(Broken::Oversold);
    }
    let is_as_noted =
        state.redis.lane.is_some_and(|lane| lane.open && lane.epoch == state.postgres.epoch);
    let is_believed = state.postgres.open && state.postgres.replication_id == state.replication_id;
    // A memory that went back sells units twice until a look notices; the next recovery takes them from letters.
    let may_have_gone_back = settings.kinds.contains(&Fault::MemoryWentBack);
    let is_open = is_as_noted && is_believed && !may_have_gone_back;
    if is_open && owed(&state.postgres).count() > settings.units as i8 {
        state.break_promise(Broken::Oversold);
    }
    let has_two = |user: u8| state.of_user(live, user).count() > 1;
    if (0..settings.users).any(has_two) {
        state.break_promise(Broken::TwoLiveOrders);
    }
}

/// Orders that hold a unit by Postgres: live ones, and dead letters with a unit that didn't become orders after all.
fn owed(stored: &Postgres) -> Orders {
    stored.live.and(stored.holding.less(stored.rows()))
}

/// Promises that hold when a lane is opened.
pub fn at_opening(settings: &Settings, state: &mut State) {
    let stored = &state.postgres;
    let units = settings.units as i8;
    let owed = owed(stored);
    if owed.count() > units {
        state.break_promise(Broken::Oversold);
        return;
    }
    let buyers = state.redis.buyers();
    let retried = state.retry.map_or(Orders::default(), |retry| Orders::one(retry.letter));
    let known = owed.and(state.redis.log).and(stored.returns).and(retried);
    // A sale that has just been lost sells nothing.
    let Some(sale) = state.redis.whole_sale() else { return };
    let is_conserved = sale.stock + buyers.count() == units;
    if !(is_conserved && buyers.holds(owed) && known.holds(buyers)) {
        state.break_promise(Broken::OpenedWrong);
    }
}

/// Promises that hold at rest: when no process has anything to do, and no further fault comes.
pub fn at_rest(settings: &Settings, state: &State) -> Option<Broken> {
    let stored = &state.postgres;
    let is_approved = stored.life == state.life || !settings.has(Guard::LifeCompared);
    let is_open = |lane: Lane| lane.open && lane.epoch == stored.epoch;
    if !(stored.open && is_approved && state.redis.lane.is_some_and(is_open)) {
        return Some(Broken::StaysClosed);
    }
    let kept = stored.committed().and(stored.superseded).and(state.excused);
    if !kept.holds(state.answered) {
        return Some(Broken::PromiseLost);
    }
    let owed = owed(stored);
    if owed.count() > settings.units as i8 {
        return Some(Broken::Oversold);
    }
    let buyers = state.redis.buyers();
    let stock = state.redis.whole_sale().map(|sale| sale.stock + buyers.count());
    let agrees = stock == Some(settings.units as i8) && buyers == owed;
    (!agrees).then_some(Broken::StoresDiffer)
}
