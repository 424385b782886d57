//! Steps of the API process, and of the users who call it.

use crate::settings::{Guard, Settings};
use crate::state::{Broken, CEILING_STEP, Call, LogLook, Orders, State};

/// `lua/claim.lua` for one claim, with the epoch that the process knows.
pub fn claim(settings: &Settings, state: &State, user: u8) -> Option<State> {
    let mut next = *state;
    let (epoch, is_open, life) = state.api.known;
    let is_approved = life == state.life || !settings.has(Guard::LifeCompared);
    let (lane, sale) = (state.redis.lane?, state.redis.whole_sale()?);
    let is_known = lane.epoch == epoch && sale.epoch == epoch;
    if state.api.call.is_some()
        || !(is_open && is_approved)
        || !lane.open && settings.has(Guard::ClaimReadsState)
        || !is_known && settings.has(Guard::ClaimReadsEpoch)
    {
        return None;
    }
    let call = |order| Call { order, epoch, life: state.life, noted: false, answered: false };
    let held = state.of_user(state.redis.buyers(), user);
    if let Some(order) = held.ids().next() {
        next.api.call = Some(call(order));
        return (!state.answered.has(order)).then_some(next);
    }
    if sale.stock < 1 || state.next_order >= settings.claims {
        return None;
    }
    let order = take_number(settings, &mut next);
    if order < state.next_order {
        // A process that has had no number of the lost ones can't know, and is promised nothing.
        next.break_promise(Broken::IdRepeated);
        let is_promised = state.api.had == state.next_order;
        return is_promised.then_some(next);
    }
    if !lane.open {
        next.break_promise(Broken::SoldWhileClosed);
    }
    if !is_known {
        next.break_promise(Broken::OlderEpoch);
    }
    next.users[usize::from(order)] = user;
    next.next_order += 1;
    next.redis.sale.as_mut()?.stock -= 1;
    next.redis.buyers_mut()?.insert(order);
    next.redis.log.insert(order);
    next.redis.last = order + 1;
    next.api.call = Some(call(order));
    Some(next)
}

/// `lua/id_block.lua`, for a block of one number. Numbers that were granted and never given are left out of the count,
/// so an order id is the number of the orders before.
fn take_number(settings: &Settings, state: &mut State) -> u8 {
    let origin = (state.life, state.replication_id);
    let (redis, stored) = (&mut state.redis, &mut state.postgres);
    let remembers = settings.has(Guard::NumbersRemembered);
    let is_believed = redis.origin == origin && (redis.sequence >= state.api.had || !remembers);
    if !is_believed || redis.sequence >= redis.ceiling {
        // Postgres notes the higher ceiling first.
        if settings.has(Guard::SequenceAboveCeiling) {
            redis.sequence = stored.ceiling.min(state.next_order);
        }
        stored.ceiling = redis.sequence + CEILING_STEP;
        (redis.ceiling, redis.origin) = (stored.ceiling, origin);
    }
    let number = redis.sequence;
    redis.sequence += 1;
    state.api.had = redis.sequence;
    number
}

/// The reply is read, and its receipt noted.
pub fn note_receipt(settings: &Settings, state: &State) -> Option<State> {
    let mut next = *state;
    let call = state.api.call.filter(|call| !call.noted)?;
    if !settings.has(Guard::ReceiptBeforeAnswer) && !call.answered {
        return None;
    }
    next.api.book.insert(call.order);
    next.api.call = (!call.answered).then_some(Call { noted: true, ..call });
    Some(next)
}

/// The lane is looked at again, and the user is told.
pub fn answer(settings: &Settings, state: &State) -> Option<State> {
    let mut next = *state;
    let call = state.api.call.filter(|call| !call.answered)?;
    if !settings.has(Guard::ReceiptBeforeAnswer) {
        next.answered.insert(call.order);
        next.api.call = Some(Call { answered: true, ..call });
        return Some(next);
    }
    if !call.noted {
        return None;
    }
    let (epoch, is_open, life) = state.api.known;
    let is_approved = life == call.life || !settings.has(Guard::LifeCompared);
    if epoch == call.epoch && is_open && is_approved {
        next.answered.insert(call.order);
    }
    next.api.call = None;
    Some(next)
}

/// The state of the lane is read from Postgres.
pub fn refresh(state: &State) -> Option<State> {
    let mut next = *state;
    let stored = &state.postgres;
    next.api.known = (stored.epoch, stored.open, stored.life);
    (next.api.known != state.api.known).then_some(next)
}

/// Receipts are handed in for an epoch that is new to the process.
pub fn hand_in(settings: &Settings, state: &State) -> Option<State> {
    let mut next = *state;
    let epoch = state.api.known.0;
    if state.api.handed_in == epoch {
        return None;
    }
    if settings.has(Guard::ReceiptsHandedIn) {
        let receipts = state.api.book.less(state.postgres.rows());
        next.postgres.receipts = state.postgres.receipts.and(receipts);
    }
    next.postgres.handed_in = epoch.max(state.postgres.handed_in);
    next.api.handed_in = epoch;
    next.api.look = None;
    Some(next)
}

/// A look at the order log; then the finding that all of its entries are acknowledged; then, two beats later, the
/// receipts are dropped. The beats stand for the time for which receipts are kept.
pub fn look_at_log(settings: &Settings, state: &State) -> Option<State> {
    let mut next = *state;
    if !settings.receipts_dropped || state.api.book.is_empty() {
        return None;
    }
    let Some(look) = state.api.look else {
        let (last, covers) = (state.redis.last, state.api.book);
        next.api.look = Some(LogLook { last, covers, committed_at: None });
        return Some(next);
    };
    let Some(committed_at) = look.committed_at else {
        let acknowledged = state.redis.log.ids().next().unwrap_or(state.redis.last);
        let committed_at = Some(state.postgres.beat);
        next.api.look = Some(LogLook { committed_at, ..look });
        return (look.last <= acknowledged).then_some(next);
    };
    let stored = &state.postgres;
    if stored.beat < committed_at + 2
        || state.api.known != (stored.epoch, stored.open, stored.life)
        || state.api.handed_in != stored.epoch
    {
        return None;
    }
    if !stored.committed().and(stored.superseded).holds(look.covers.common(state.answered)) {
        next.break_promise(Broken::ReceiptDropped);
    }
    next.api.book = state.api.book.less(look.covers);
    next.api.look = None;
    Some(next)
}

/// A user cancels an unpaid order: one transaction.
pub fn cancel(state: &State, order: u8) -> Option<State> {
    let mut next = *state;
    if state.cancels_left == 0 || !state.postgres.live.has(order) {
        return None;
    }
    next.cancels_left -= 1;
    let stored = &mut next.postgres;
    stored.live = stored.live.less(Orders::one(order));
    stored.closed.insert(order);
    stored.returns.insert(order);
    Some(next)
}
