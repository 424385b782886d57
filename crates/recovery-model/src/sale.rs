//! A sale is loaded, archived and deleted.

use crate::api;
use crate::settings::{Guard, Settings};
use crate::state::{Sale, State, one, only_if};

/// A process asks Postgres, runs the script, and notes the load.
pub fn load(rules: &Settings, s: &mut State, number: usize) -> Option<()> {
    let (epoch, load) = match s.loaders[number] {
        None => {
            only_if(rules.loads && s.pg.loads[0] == 0 && s.pg.open)?;
            s.loaders[number] = Some((s.pg.epoch, None));
            return only_if(api::is_open_for(rules, s, s.pg.epoch));
        }
        Some((epoch, None)) => {
            let load = run_script(rules, s, epoch);
            s.loaders[number] = load.map(|load| (epoch, Some(load)));
            return Some(());
        }
        Some((epoch, Some(load))) => (epoch, load),
    };
    s.loaders[number] = None;
    if s.pg.open && s.pg.epoch == epoch && s.pg.loads[0] == 0 {
        s.pg.loads[0] = load;
    }
    Some(())
}

/// Rule 2: a sale that is there stays as it is, but for a load that was cut off under an older epoch.
fn run_script(rules: &Settings, s: &mut State, epoch: u8) -> Option<u8> {
    only_if(api::is_open_for(rules, s, epoch))?;
    let found = s.redis.sales[0];
    let is_there = found.load != 0 && (!found.loading || found.epoch == epoch);
    if is_there && rules.has(Guard::LoadRefusesExisting) {
        return Some(found.load);
    }
    s.last_load += 1;
    s.redis.sales[0] = Sale { loading: true, ..Sale::new(epoch, s.last_load, rules.units, 0) };
    Some(s.last_load)
}

/// A sale whose load is noted is opened to claims.
pub fn open(rules: &Settings, s: &mut State) -> Option<()> {
    only_if(s.pg.open && api::sells_to(rules, s, s.pg.epoch, 0))?;
    let sale = &mut s.redis.sales[0];
    only_if(sale.loading && sale.load == s.pg.loads[0])?;
    sale.loading = false;
    Some(())
}

/// A sale ends in Redis, and is archived when all of it is written and returned.
pub fn archive(rules: &Settings, s: &mut State) -> Option<()> {
    let under_way = s.pg.returns | s.redis.log? | s.worker.batch | s.pg.unwritten;
    only_if(rules.archives && s.pg.archived & 1 == 0 && under_way & s.of_sale(0) == 0)?;
    only_if(s.pg.open && api::sells_to(rules, s, s.pg.epoch, 0))?;
    s.redis.sales[0].ended = true;
    s.pg.archived |= one(0);
    Some(())
}

/// Its keys are removed from Redis.
pub fn remove(rules: &Settings, s: &mut State) -> Option<()> {
    only_if(s.pg.open && api::is_open_for(rules, s, s.pg.epoch))?;
    only_if(s.pg.archived & !s.pg.gone & one(0) != 0)?;
    s.redis.sales[0] = Sale::default();
    s.pg.gone |= one(0);
    Some(())
}

/// Rule 17: its rows and letters are deleted.
pub fn delete(rules: &Settings, s: &mut State) -> Option<()> {
    let is_gone = s.pg.gone & one(0) != 0;
    only_if(rules.archives && (is_gone || !rules.has(Guard::DeletedWhenGone)))?;
    let over = (s.pg.closed | s.pg.discarded) & !s.pg.returns;
    let deleted = s.of_sale(0) & s.pg.known() & if is_gone { 0xff } else { over };
    s.pg.live &= !deleted;
    s.pg.closed &= !deleted;
    s.pg.letters &= !deleted;
    s.pg.discarded &= !deleted;
    s.ended |= deleted;
    only_if(deleted != 0)
}
