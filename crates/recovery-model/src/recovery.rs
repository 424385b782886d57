//! Steps of a recovery, in the order of `Recoverer::recover`.

use crate::keeper;
use crate::settings::{Guard, Hole, Settings};
use crate::state::{Broken, Keeper, Lane, Orders, Postgres, Sale, Stage, State};
use crate::worker;

/// The next step of the recovery of this process.
pub fn step(settings: &Settings, state: &State, number: u8) -> Option<State> {
    let mut next = *state;
    let mut recovery = state.keepers[usize::from(number)];
    let goes_on = match recovery.stage {
        Stage::Idle => begin(settings, &mut next, &mut recovery, number)?,
        Stage::Raised => fence(settings, &mut next, &mut recovery),
        Stage::Fenced => receipts(&mut next, &mut recovery)?,
        Stage::Receipts => look(settings, &mut next, &mut recovery),
        Stage::Damaged => harvest(settings, &mut next, &mut recovery)?,
        Stage::Harvested => {
            if settings.has(Guard::SnapshotAfterFence) {
                snapshot(settings, state, &mut recovery);
            }
            Some(Stage::Snapped)
        }
        Stage::Snapped => {
            let built = &mut next.redis.shards[generation(settings, &recovery)];
            *built = built.and(recovery.buyers);
            next.redis.made |= 1 << generation(settings, &recovery);
            Some(Stage::Filled)
        }
        Stage::Filled => note_units(settings, &mut next, &recovery),
        Stage::Noted => switch(settings, &mut next, &recovery),
        Stage::Ready => open_in_postgres(settings, &mut next, &mut recovery),
        Stage::OpenInPostgres => {
            open_in_redis(settings, &mut next, &recovery);
            None
        }
    };
    // A step of a recovery may take longer than a second.
    if let Some(saved) = &mut next.saved {
        saved.age = 2;
    }
    next.keepers[usize::from(number)] = match goes_on {
        Some(stage) => Keeper { stage, ..recovery },
        // Over, or another one has begun.
        None => Keeper::default(),
    };
    Some(next)
}

fn generation(settings: &Settings, recovery: &Keeper) -> usize {
    let names_epoch = settings.has(Guard::EpochInShardNames);
    if names_epoch { usize::from(recovery.epoch) } else { 0 }
}

/// Raises the epoch. None while the lane is open, or kept by the other process.
fn begin(
    settings: &Settings,
    state: &mut State,
    recovery: &mut Keeper,
    number: u8,
) -> Option<Option<Stage>> {
    if state.keeper != number || state.postgres.open || recovery.note.is_some() {
        return None;
    }
    keeper::close(state);
    recovery.epoch = state.postgres.epoch;
    if !settings.has(Guard::SnapshotAfterFence) {
        snapshot(settings, state, recovery);
    }
    Some(Some(Stage::Raised))
}

/// `lua/fence.lua`. From here on one connection is used.
fn fence(settings: &Settings, state: &mut State, recovery: &mut Keeper) -> Option<Stage> {
    (recovery.life, recovery.replication_id) = (state.life, state.replication_id);
    let epoch = recovery.epoch;
    if !settings.has(Guard::EpochRaisedInRedis) {
        return Some(Stage::Fenced);
    }
    let before = state.redis.lane;
    if before.is_some_and(|lane| lane.epoch > epoch) {
        return None;
    }
    let lost = Lane { epoch, open: false, beat: None, beat_since: 0, mark: false };
    state.redis.lane = Some(Lane { epoch, open: false, mark: false, ..before.unwrap_or(lost) });
    Some(Stage::Fenced)
}

/// Waits for the process that lives; then reads its receipts and the noted beat.
fn receipts(state: &mut State, recovery: &mut Keeper) -> Option<Option<Stage>> {
    if state.postgres.handed_in < recovery.epoch {
        return None;
    }
    read_receipts(&state.postgres, recovery);
    Some(Some(Stage::Receipts))
}

/// Reads what was handed in and noted.
pub fn read_receipts(stored: &Postgres, recovery: &mut Keeper) {
    recovery.receipts = stored.receipts;
    (recovery.beat, recovery.beat_since) = (stored.beat, stored.beat_since);
}

/// `lua/adopt_sale.lua`, the count of the sale, and the comparison of recent orders and receipts with its buyers.
fn look(settings: &Settings, state: &mut State, recovery: &mut Keeper) -> Option<Stage> {
    let lane = state.redis.lane.filter(|_| state.life == recovery.life)?;
    if !state.redis.is_recovered_by(recovery.epoch) {
        return (!settings.has(Guard::EpochRaisedInRedis)).then_some(Stage::Damaged);
    }
    let buyers = state.redis.buyers();
    let has_shards = state.redis.whole_sale().is_some();
    let Some(sale) = &mut state.redis.sale else {
        return Some(Stage::Damaged);
    };
    sale.epoch = recovery.epoch;
    let is_unfinished = sale.generation > state.postgres.opened;
    if is_unfinished && settings.repairs(Hole::BuiltByUnfinished) {
        return Some(Stage::Damaged);
    }
    let is_whole = has_shards && sale.stock + buyers.count() == settings.units as i8;
    let is_present = lane.beat == Some(recovery.beat) || lane.beat == Some(recovery.beat + 1);
    let letters = state.postgres.holding.common(without_live_order(state));
    let recent = state.postgres.live.and(letters).common(Orders::since(recovery.beat_since));
    if !(is_whole && is_present && buyers.holds(recent.and(recovery.receipts))) {
        return Some(Stage::Damaged);
    }
    if settings.repairs(Hole::UnitsOfKeptSale) {
        if state.postgres.epoch != recovery.epoch {
            return None;
        }
        let letters = without_live_order(state);
        let holding = state.postgres.holding.less(letters);
        state.postgres.holding = holding.and(letters.common(buyers));
    }
    mark(settings, state);
    let stored = &mut state.postgres;
    stored.returns = stored.returns.and(stored.returned);
    stored.returned = Orders::default();
    Some(Stage::Ready)
}

/// `dead_letter::without_live_order`.
fn without_live_order(state: &State) -> Orders {
    let stored = &state.postgres;
    let has_none = |letter: &u8| state.of_user(stored.live, state.user(*letter)).is_empty();
    let letters = stored.letters.less(stored.rows()).ids().filter(has_none);
    Orders(letters.fold(0, |set, letter| set | 1 << letter))
}

fn mark(settings: &Settings, state: &mut State) {
    if let Some(lane) = &mut state.redis.lane {
        lane.mark = settings.repairs(Hole::RolledBackWhileClosed);
    }
}

/// Waits for the log; then buyers and receipts that Postgres doesn't know become orders.
fn harvest(settings: &Settings, state: &mut State, recovery: &mut Keeper) -> Option<Option<Stage>> {
    if settings.has(Guard::LogDrained) && !state.redis.log.is_empty() {
        // The wait has an end, and is in vain when the worker takes this Redis for an older one.
        let is_ours = state.redis.is_recovered_by(recovery.epoch);
        return (!is_ours).then_some(None);
    }
    let before = state.postgres;
    for promised in [state.redis.buyers(), recovery.receipts] {
        let stored = &state.postgres;
        let knows_closed = settings.has(Guard::HarvestKnowsClosed);
        let known = if knows_closed { stored.committed() } else { stored.live.and(stored.letters) };
        let unknown = promised.less(known);
        let is_superseded = |order: &u8| {
            let newer = Orders::since(order + 1).common(state.postgres.rows());
            !state.of_user(newer, state.user(*order)).is_empty()
        };
        let superseded = unknown.ids().filter(is_superseded);
        let superseded = Orders(superseded.fold(0, |set, order| set | 1 << order));
        let left_out = settings.has(Guard::SupersededLeftOut);
        let kept = if left_out { unknown.less(superseded) } else { unknown };
        let is_held = state.postgres.epoch == recovery.epoch;
        if !kept.is_empty() && !is_held && settings.has(Guard::WriterHoldsEpoch) {
            return Some(None);
        }
        state.postgres.superseded = state.postgres.superseded.and(unknown.less(kept));
        let closed = state.postgres.closed;
        worker::write(settings, state, kept);
        worker::write_again(settings, state, kept.common(closed));
        if !superseded.and(closed).common(state.postgres.live).is_empty() {
            state.break_promise(Broken::CameBack);
        }
    }
    if state.postgres.epoch != recovery.epoch && state.postgres.committed() != before.committed() {
        state.break_promise(Broken::OlderEpoch);
    }
    Some(Some(Stage::Harvested))
}

/// Live orders are buyers, and of the open dead letters as many as there is room for, one for each user.
fn snapshot(settings: &Settings, state: &State, recovery: &mut Keeper) {
    let stored = &state.postgres;
    let mut buyers = stored.live;
    let letters = match settings.repairs(Hole::LetterOfOrder) {
        true => stored.letters.less(stored.rows()),
        false => stored.letters,
    };
    for letter in letters.ids() {
        let has_unit = !state.of_user(buyers, state.user(letter)).is_empty();
        let has_room = buyers.count() < settings.units as i8;
        if !has_unit && (has_room || !settings.has(Guard::LettersWithinRoom)) {
            buyers.insert(letter);
        }
    }
    recovery.buyers = buyers;
    recovery.holding = buyers.less(stored.live);
}

/// Which dead letters hold a unit. Holds no epoch in the code.
fn note_units(settings: &Settings, state: &mut State, recovery: &Keeper) -> Option<Stage> {
    let is_current = state.postgres.epoch == recovery.epoch;
    if settings.repairs(Hole::UnitsNotedLate) && !is_current {
        return None;
    }
    if !is_current && state.postgres.holding != recovery.holding {
        state.break_promise(Broken::OlderEpoch);
    }
    state.postgres.holding = recovery.holding;
    Some(Stage::Noted)
}

/// `lua/switch_sale.lua`.
fn switch(settings: &Settings, state: &mut State, recovery: &Keeper) -> Option<Stage> {
    let is_ours = state.redis.is_recovered_by(recovery.epoch);
    if state.life != recovery.life || !is_ours && settings.has(Guard::SwitchComparesEpoch) {
        return None;
    }
    if !is_ours {
        state.break_promise(Broken::OlderEpoch);
    }
    let generation = generation(settings, recovery);
    let is_made = state.redis.made >> generation & 1 == 1;
    let is_filled = is_made && state.redis.shards[generation].holds(recovery.buyers);
    if settings.repairs(Hole::RolledBackWhileClosed) && !is_filled {
        return None;
    }
    let before = state.redis.sale.map(|sale| usize::from(sale.generation));
    if let Some(before) = before.filter(|before| *before != generation) {
        state.redis.shards[before] = Orders::default();
        state.redis.made &= !(1 << before);
    }
    let stock = settings.units as i8 - recovery.buyers.count();
    state.redis.sale = Some(Sale { epoch: recovery.epoch, generation: generation as u8, stock });
    state.redis.given_back = Orders::default();
    mark(settings, state);
    Some(Stage::Ready)
}

fn open_in_postgres(
    settings: &Settings,
    state: &mut State,
    recovery: &mut Keeper,
) -> Option<Stage> {
    let origin = (recovery.life, recovery.replication_id);
    if (state.life, state.replication_id) != origin && settings.has(Guard::ReplicationIdCompared) {
        return None;
    }
    let stored = &mut state.postgres;
    let is_ours = stored.epoch == recovery.epoch || !settings.has(Guard::OpeningComparesEpoch);
    if !is_ours || stored.open {
        return None;
    }
    (stored.open, stored.life) = (true, recovery.life);
    stored.opened = recovery.epoch;
    stored.replication_id = recovery.replication_id;
    if settings.repairs(Hole::BeatUsedTwice) {
        recovery.beat += 2;
        stored.beat = recovery.beat;
    }
    stored.receipts = stored.receipts.less(recovery.receipts);
    Some(Stage::OpenInPostgres)
}

/// `lua/open_lane.lua`.
fn open_in_redis(settings: &Settings, state: &mut State, recovery: &Keeper) {
    let Some(lane) = state.redis.lane.filter(|_| state.life == recovery.life) else {
        return;
    };
    let is_ours = lane.epoch == recovery.epoch || !settings.has(Guard::OpeningComparesEpoch);
    let is_marked = lane.mark || !settings.repairs(Hole::RolledBackWhileClosed);
    let is_another = settings.repairs(Hole::OriginComparedEarly)
        && settings.has(Guard::ReplicationIdCompared)
        && state.replication_id != recovery.replication_id;
    if !is_ours || lane.open || !is_marked || is_another {
        return;
    }
    if lane.epoch != recovery.epoch {
        state.break_promise(Broken::OlderEpoch);
    }
    keeper::open(settings, state, (recovery.beat, recovery.beat_since));
}
