//! Faults, and the moments of which an older state is kept.

use crate::settings::{Fault, Settings};
use crate::state::{Api, Recovery, Redis, Sale, State, Worker, only_if};

/// An older state of Redis begins: a file, or a replica that lags from here on.
pub fn save(rules: &Settings, s: &mut State) -> Option<()> {
    let kinds = [Fault::RestartedOlder, Fault::MemoryWentBack];
    only_if(s.faults > 0 && s.saved.is_none() && rules.knows(&kinds))?;
    s.saved = Some(s.redis);
    Some(())
}

/// Postgres is dumped.
pub fn dump(rules: &Settings, s: &mut State) -> Option<()> {
    let kinds = [Fault::PostgresWentBack, Fault::PostgresReplaced];
    only_if(s.faults > 0 && s.dump.is_none() && rules.knows(&kinds))?;
    s.dump = Some(s.pg);
    Some(())
}

/// A fault, if one is left.
pub fn happen(s: &mut State, fault: Fault) -> Option<()> {
    only_if(s.faults > 0)?;
    s.faults -= 1;
    match fault {
        Fault::ApiDies => api_dies(s),
        Fault::ApiPaused => s.recoveries[s.leader].impatient = true,
        Fault::WorkerDies => s.worker = Worker::default(),
        Fault::LeaderDies => s.recoveries[s.leader] = Recovery::default(),
        Fault::SecondLeader => s.leader = 1 - s.leader,
        Fault::Closed => {
            s.pg.epoch += 1;
            s.pg.open = false;
        }
        Fault::Restart => s.replid += 1,
        Fault::RestartedOlder => (s.replid, s.redis) = (s.replid + 1, s.saved.take()?),
        Fault::MemoryWentBack => (s.unseen, s.redis) = (true, s.saved.take()?),
        Fault::Flushed => s.redis = Redis::default(),
        Fault::SaleLost => s.redis.sales[0] = Sale::default(),
        Fault::ShardLost => s.redis.sales[0].buyers = None,
        Fault::LogLost => s.redis.log = None,
        Fault::PostgresWentBack | Fault::PostgresReplaced => {
            let before = std::mem::replace(&mut s.pg, s.dump.take()?);
            s.run += u8::from(fault == Fault::PostgresReplaced);
            s.lost = before.known() & !s.pg.known();
            s.ended = s.pg.closed | s.pg.discarded;
            (s.unseen, s.went_back) = (true, true);
        }
        Fault::ClockAhead => s.clock = 3,
        Fault::ClockBehind => s.clock = -3,
    }
    if s.unseen {
        s.recoveries.iter_mut().for_each(|recovery| recovery.is_fresh = false);
    }
    if s.faults == 0 {
        (s.saved, s.dump) = (None, None);
    }
    s.excused |= s.orphans & !s.remembered();
    Some(())
}

/// Its unwritten claims die with it.
fn api_dies(s: &mut State) {
    s.orphans |= s.answered & !s.pg.known();
    let Api { epoch, open, .. } = s.api;
    s.api = Api { epoch, open, ..Api::default() };
}
