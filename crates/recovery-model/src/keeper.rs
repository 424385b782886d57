//! Looks of the process that keeps the lanes.

use crate::promises;
use crate::settings::{Guard, Hole, Settings};
use crate::state::{Broken, EPOCH_MAX, Lane, Stage, State};

/// True for a process that keeps the lanes, and is between two steps of its pass.
fn is_free(state: &State, number: u8) -> bool {
    let keeper = &state.keepers[usize::from(number)];
    state.keeper == number && keeper.stage == Stage::Idle && keeper.note.is_none()
}

/// Raises the epoch and closes the lane in Postgres.
pub fn close(state: &mut State) {
    state.postgres.epoch += 1;
    state.postgres.open = false;
    state.gap = false;
    if let Some(saved) = &mut state.saved {
        saved.age = 2;
    }
    if state.postgres.epoch >= EPOCH_MAX {
        state.break_promise(Broken::Unbounded);
    }
}

/// A look that finds a difference: the lane is closed; or opened, where Postgres has approved it.
pub fn look_finds(settings: &Settings, state: &State, number: u8) -> Option<State> {
    let mut next = *state;
    let stored = &state.postgres;
    if !is_free(state, number) || !stored.open {
        return None;
    }
    let of_other_life = stored.life != state.life && settings.has(Guard::LifeCompared);
    let has_other_id =
        stored.replication_id != state.replication_id && settings.has(Guard::ReplicationIdCompared);
    match state.redis.lane {
        _ if of_other_life || has_other_id => close(&mut next),
        Some(lane) if lane.epoch > stored.epoch => return None,
        Some(lane) if lane.epoch == stored.epoch && !lane.open => {
            match settings.repairs(Hole::OpenedUnseen) {
                true => close(&mut next),
                false => open(settings, &mut next, (stored.beat, stored.beat_since)),
            }
        }
        Some(lane) if is_as_noted(settings, state, &lane) => return None,
        _ => close(&mut next),
    }
    Some(next)
}

/// True for an open lane that `lua/beat.lua` finds as it was noted, and is believed.
fn is_as_noted(settings: &Settings, state: &State, lane: &Lane) -> bool {
    let noted = state.postgres.beat;
    let has_beat = lane.beat == Some(noted) || lane.beat == Some(noted + 1);
    let is_due = state.gap && settings.repairs(Hole::BeatAfterGap);
    lane.epoch == state.postgres.epoch
        && (has_beat || !settings.has(Guard::BeatCompared))
        && !is_due
}

/// `lua/open_lane.lua`: opens a lane that is recovering.
pub fn open(settings: &Settings, state: &mut State, (beat, beat_since): (u8, u8)) {
    if let Some(lane) = &mut state.redis.lane {
        (lane.open, lane.beat, lane.beat_since) = (true, Some(beat), beat_since);
        promises::at_opening(settings, state);
    }
}

/// A look that confirms the beat, and raises it.
pub fn look_confirms(settings: &Settings, state: &State, number: u8) -> Option<State> {
    let mut next = *state;
    let stored = &state.postgres;
    let lane = next.redis.lane.as_mut()?;
    let has_life = stored.life == state.life || !settings.has(Guard::LifeCompared);
    let has_id = stored.replication_id == state.replication_id
        || !settings.has(Guard::ReplicationIdCompared);
    let is_approved = has_life && has_id;
    let is_open = stored.open && is_approved && lane.open;
    let can_raise = is_free(state, number) && state.beats_left > 0;
    if !(is_open && can_raise && is_as_noted(settings, state, lane)) {
        return None;
    }
    let beat = stored.beat + 1;
    if lane.beat != Some(beat) {
        (lane.beat, lane.beat_since) = (Some(beat), state.next_order);
    }
    next.beats_left -= 1;
    next.keepers[usize::from(number)].note = Some((beat, lane.beat_since));
    if let Some(saved) = &mut next.saved {
        saved.age = (saved.age + 1).min(2);
    }
    Some(next)
}

/// The beat is noted in Postgres. With the repair, by the keeper only.
pub fn note(settings: &Settings, state: &State, number: u8) -> Option<State> {
    let mut next = *state;
    let (beat, since) = next.keepers[usize::from(number)].note.take()?;
    let is_late = state.keeper != number && settings.repairs(Hole::BeatAfterGap);
    if beat > state.postgres.beat && !is_late {
        (next.postgres.beat, next.postgres.beat_since) = (beat, since);
        next.gap = false;
    }
    Some(next)
}

/// A sale that a claim has found lost, or of another epoch.
pub fn look_at_sale(settings: &Settings, state: &State, number: u8) -> Option<State> {
    let mut next = *state;
    let stored = &state.postgres;
    let lane = state.redis.lane?;
    let is_whole = state.redis.whole_sale().is_some_and(|sale| {
        let all = sale.stock + state.redis.buyers().count();
        sale.epoch == stored.epoch && all == settings.units as i8
    });
    if !is_free(state, number) || !stored.open || !lane.open || is_whole {
        return None;
    }
    close(&mut next);
    Some(next)
}

/// Receipts that were handed in late: settled if each claim is kept, else the lane is closed.
pub fn look_at_receipts(state: &State, number: u8) -> Option<State> {
    let mut next = *state;
    let stored = &state.postgres;
    if !is_free(state, number) || !stored.open || stored.receipts.is_empty() {
        return None;
    }
    match stored.committed().and(state.redis.buyers()).holds(stored.receipts) {
        true => next.postgres.receipts = Default::default(),
        false => close(&mut next),
    }
    Some(next)
}
