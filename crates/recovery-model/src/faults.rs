//! Faults, and the moments of which Redis keeps an older state.

use crate::settings::{Fault, Settings};
use crate::state::{Api, Keeper, Orders, Redis, Saved, Stage, State, Worker};

/// An older state of Redis begins: a file, or a replica that lags from here on.
pub fn save(settings: &Settings, state: &State) -> Option<State> {
    let mut next = *state;
    let going_back = [Fault::RestartedOlder, Fault::Resynchronised, Fault::MemoryWentBack];
    let goes_back = going_back.iter().any(|fault| settings.kinds.contains(fault));
    if state.faults_left == 0 || state.saved.is_some() || !goes_back {
        return None;
    }
    next.saved = Some(Saved { redis: state.redis, age: 0 });
    Some(next)
}

/// A fault, if it is one of the model's, and one is left.
pub fn happen(settings: &Settings, state: &State, fault: Fault) -> Option<State> {
    if state.faults_left == 0 || !settings.kinds.contains(&fault) {
        return None;
    }
    let mut next = *state;
    next.faults_left -= 1;
    match fault {
        Fault::ApiDies => api_dies(&mut next),
        Fault::WorkerDies => next.worker = Worker::default(),
        Fault::KeeperDies => {
            next.keepers[usize::from(state.keeper)] = Keeper::default();
            change_keeper(&mut next);
        }
        Fault::KeeperPaused => {
            let paused = &state.keepers[usize::from(state.keeper)];
            if *paused == Keeper::default() {
                return None;
            }
            change_keeper(&mut next);
        }
        Fault::ApiPaused => {
            let keeper = &mut next.keepers[usize::from(state.keeper)];
            if keeper.stage != Stage::Fenced || state.postgres.handed_in >= keeper.epoch {
                return None;
            }
            crate::recovery::read_receipts(&state.postgres, keeper);
            keeper.stage = Stage::Receipts;
        }
        Fault::Restart => next.life += 1,
        Fault::RestartedOlder => {
            next.redis = next.saved.take()?.redis;
            next.life += 1;
        }
        Fault::Resynchronised => {
            next.redis = next.saved.take()?.redis;
            next.replication_id += 1;
        }
        Fault::MemoryWentBack => {
            next.redis = next.saved.take().filter(|saved| saved.age == 2)?.redis;
        }
        Fault::Flushed => next.redis = empty(state.redis.shards.map(|_| Orders::default())),
        Fault::SaleLost => {
            let none = state.redis.shards.map(|_| Orders::default());
            next.redis = Redis { sale: None, shards: none, made: 0, ..state.redis };
        }
    }
    if next.faults_left == 0 {
        next.saved = None;
    }
    excuse(&mut next);
    Some(next)
}

fn empty(shards: [Orders; crate::state::EPOCH_MAX as usize + 1]) -> Redis {
    let log = Orders::default();
    let (last, sequence, ceiling, origin) = (0, 0, 0, (0, 0));
    let (lane, sale, made, given_back) = (None, None, 0, log);
    Redis { lane, sale, shards, made, given_back, log, last, sequence, ceiling, origin }
}

/// Its receipts die with it; the process that follows has promised nothing.
fn api_dies(state: &mut State) {
    let stored = &state.postgres;
    state.orphans = state.orphans.and(state.answered.less(stored.committed()));
    let known = (stored.epoch, stored.open, stored.life);
    let book = Orders::default();
    state.api = Api { known, handed_in: 0, book, had: 0, call: None, look: None };
}

/// The lease of the keeper runs out: that takes longer than a second.
fn change_keeper(state: &mut State) {
    state.keeper = 1 - state.keeper;
    state.gap = true;
    if let Some(saved) = &mut state.saved {
        saved.age = 2;
    }
}

/// No store and no process has these promises any more.
fn excuse(state: &mut State) {
    let in_redis = state.redis.log.and(state.redis.buyers());
    let known = in_redis.and(state.postgres.receipts).and(state.postgres.committed());
    state.excused = state.excused.and(state.orphans.less(known));
}
