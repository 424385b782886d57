//! The worker: the order log becomes orders, and units come back.

use crate::api;
use crate::settings::{Guard, Settings};
use crate::state::{Set, State, Worker, count, one, only_if};

/// Entries are read, with the epoch of the lane's hash.
pub fn read(rules: &Settings, s: &mut State) -> Option<()> {
    let (batch, lane, returned) = (s.redis.log?, s.redis.lane, s.worker.returned);
    only_if(s.worker.batch == 0 && batch != 0 && lane.epoch == s.pg.epoch)?;
    only_if(s.pg.open || !rules.has(Guard::WriterRequiresOpen))?;
    only_if(!is_missing(s, lane.last) || !rules.has(Guard::WriterAsksLast))?;
    s.worker = Worker { batch, epoch: lane.epoch, last: lane.last, committed: false, returned };
    Some(())
}

/// Rule 7: one transaction, which holds the lane's row.
pub fn commit(rules: &Settings, s: &mut State) -> Option<()> {
    let Worker { batch, epoch, last, committed, .. } = s.worker;
    only_if(batch != 0 && !committed)?;
    let is_refused = epoch != s.pg.epoch && rules.has(Guard::WriterHoldsEpoch)
        || !s.pg.open && rules.has(Guard::WriterRequiresOpen)
        || is_missing(s, last) && rules.has(Guard::WriterAsksLast);
    if is_refused {
        s.worker.batch = 0;
        return Some(());
    }
    write(rules, s, batch);
    s.worker.committed = true;
    Some(())
}

/// True if Postgres lacks the newest acknowledged order, although its sale isn't archived: Postgres went back.
pub fn is_missing(s: &State, last: u8) -> bool {
    last != 0 && one(usize::from(last) - 1) & !s.pg.known() & !s.archived() != 0
}

/// Rule 11: claims become orders; dead letters where the sale is archived, the user has a live order, or no unit is
/// left.
pub fn write(rules: &Settings, s: &mut State, claims: Set) {
    for order in s.by_id(claims) {
        let closed_too = rules.has(Guard::ClosedKnown);
        let known = if closed_too { s.pg.known() } else { s.pg.live | s.pg.letters };
        let is_archived = s.archived() & one(order) != 0 && rules.has(Guard::ArchivedStays);
        if known & one(order) != 0 {
            continue;
        } else if is_archived || !has_room(rules, s, order) {
            s.pg.letters |= one(order);
            s.pg.places |= one(order);
        } else {
            s.pg.live |= one(order);
        }
    }
}

/// Postgres's constraints: the user has no live order, and a unit is left.
pub fn has_room(rules: &Settings, s: &State, order: usize) -> bool {
    let sold = count(s.of_sale(s.sale_of(order)) & s.pg.live);
    s.rivals(order) & s.pg.live == 0 && sold < rules.units
}

/// The entries of a committed batch leave the log.
pub fn acknowledge(_: &Settings, s: &mut State) -> Option<()> {
    only_if(s.worker.batch != 0 && s.worker.committed)?;
    take_off(s, s.worker.batch, s.worker.epoch);
    (s.worker.batch, s.worker.committed) = (0, false);
    Some(())
}

/// The script that acknowledges: it compares the epoch, and notes the newest order.
pub fn take_off(s: &mut State, batch: Set, epoch: u8) {
    let taken = s.redis.log.unwrap_or(0) & batch;
    if s.redis.lane.epoch != epoch || taken == 0 {
        return;
    }
    s.redis.log = s.redis.log.map(|log| log & !taken);
    s.redis.lane.last = s.redis.lane.last.max(8 - taken.leading_zeros() as u8);
    let safe = s.pg.known() | s.archived();
    s.require(taken & !safe == 0 || s.went_back, "an acknowledged claim is in a table");
}

/// The script that returns a unit, or the place of an order that is no longer unpaid: units first.
pub fn release(rules: &Settings, s: &mut State) -> Option<()> {
    let is_unit = s.pg.returns != 0;
    let waiting = if is_unit { s.pg.returns } else { s.pg.places };
    only_if(s.pg.open && waiting != 0 && s.worker.returned.is_none())?;
    let order = waiting.trailing_zeros() as usize;
    let (epoch, number) = (s.pg.epoch, s.sale_of(order));
    only_if(api::is_open_for(rules, s, epoch))?;
    let compares = rules.has(Guard::ReleaseComparesOrder);
    let held = if compares { one(order) } else { s.rivals(order) };
    let sale = &mut s.redis.sales[number];
    if is_unit && sale.load != 0 {
        only_if(sale.epoch == epoch)?;
        let buyers = sale.buyers?;
        sale.stock += count(buyers & held);
        sale.buyers = Some(buyers & !held);
    }
    s.redis.unpaid &= !one(order);
    s.worker.returned = Some((order, is_unit, epoch));
    Some(())
}

/// Rule 7: the return of this unit, or of this place, is closed in Postgres.
pub fn close_return(rules: &Settings, s: &mut State) -> Option<()> {
    let (order, is_unit, epoch) = s.worker.returned.take()?;
    let is_ours = epoch == s.pg.epoch && s.pg.open;
    if is_ours || !rules.has(Guard::ReturnClosedUnderEpoch) {
        let waiting = if is_unit { &mut s.pg.returns } else { &mut s.pg.places };
        *waiting &= !one(order);
    }
    Some(())
}
