//! Entries that the owner of a lane has read and not finished, claim by claim.
//!
//! An entry may have more claims than a batch, and a batch takes claims from several entries. So each claim is in one
//! of four places: waiting for a batch, in a batch that is being written, contended, or finished. An entry is
//! acknowledged when all its positions are finished. A batch that fails returns its claims, so that positions finished
//! by other batches aren't written again.
//!
//! This state ends with the process: the next owner of the lane writes all positions of an entry, and recognises those
//! that are rows already.

use std::collections::{HashMap, VecDeque};

use crate::base::limits;
use crate::log::{Entry, EntryId, LoggedClaim, Unreadable};

#[derive(Default)]
pub(super) struct OpenEntries {
    entries: HashMap<EntryId, Unfinished>,
    /// Claims for the next batches, in log order.
    waiting: VecDeque<LoggedClaim>,
    /// Positions without a claim, for the next batch.
    unreadable: Vec<Unreadable>,
    /// Claims whose buyer's lock, or whose sale's row, was held elsewhere.
    contended: Vec<LoggedClaim>,
    /// Number of positions and number of entries of the last read.
    last_read: (usize, usize),
}

struct Unfinished {
    /// Positions that aren't finished.
    positions: usize,
    /// How many of the entry's orders the lane counts as accepted.
    counted: u64,
}

/// Claims and other positions that are written together.
#[derive(Default)]
pub(super) struct Batch {
    /// In log order, except for claims that are tried again.
    pub claims: Vec<LoggedClaim>,
    /// Positions without a claim.
    pub unreadable: Vec<Unreadable>,
}

impl Batch {
    /// Number of positions.
    pub fn len(&self) -> usize {
        self.claims.len() + self.unreadable.len()
    }
}

impl OpenEntries {
    /// Adds entries that have been read. Entries that are already known keep their state.
    pub fn add(&mut self, entries: Vec<Entry>) {
        if !entries.is_empty() {
            let claims = entries.iter().map(Entry::positions).sum();
            self.last_read = (claims, entries.len());
        }
        for entry in entries {
            if self.entries.contains_key(&entry.id) {
                continue;
            }
            let work = Unfinished { positions: entry.positions(), counted: entry.counted() };
            self.entries.insert(entry.id, work);
            self.waiting.extend(entry.claims);
            self.unreadable.extend(entry.unreadable);
        }
    }

    /// Number of claims that wait for a batch.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Number of entries to read for so many claims, if the next entries are like the last ones.
    pub fn entries_for(&self, claims: usize) -> usize {
        let (read, entries) = self.last_read;
        let entries = claims * entries.max(1) / read.max(1);
        entries.clamp(1, limits::ENTRIES_AT_A_TIME)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn has_contended(&self) -> bool {
        !self.contended.is_empty()
    }

    /// Moves contended claims to those that wait for a batch.
    pub fn retry_contended(&mut self) {
        self.waiting.extend(self.contended.drain(..));
    }

    /// Takes a batch of up to `claims` claims.
    pub fn take(&mut self, claims: usize) -> Batch {
        let claims = self.waiting.drain(..claims.min(self.waiting.len())).collect();
        Batch { claims, unreadable: std::mem::take(&mut self.unreadable) }
    }

    /// Sets claims aside whose buyer's lock, or whose sale's row, was held elsewhere.
    pub fn contend(&mut self, claims: impl IntoIterator<Item = LoggedClaim>) {
        self.contended.extend(claims);
    }

    /// Returns the positions of a failed batch, to be tried first.
    pub fn put_back(&mut self, batch: Batch) {
        for claim in batch.claims.into_iter().rev() {
            self.waiting.push_front(claim);
        }
        self.unreadable.extend(batch.unreadable);
    }

    /// Marks a position of each of these entries as finished, as often as the entry is named. Returns the entries of
    /// which all positions are finished now, each with the number of its orders that the lane counts as accepted.
    pub fn finish(&mut self, positions: impl IntoIterator<Item = EntryId>) -> Vec<(EntryId, u64)> {
        let mut finished = Vec::new();
        for id in positions {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            entry.positions = entry.positions.saturating_sub(1);
            if entry.positions == 0 {
                finished.push((id, entry.counted));
                self.entries.remove(&id);
            }
        }
        finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sequence: u64, claims: &[i64]) -> Entry {
        let users: Vec<String> = claims.iter().map(ToString::to_string).collect();
        let fields = ["coupon", "1024", "first", "1", "order", "7", "users", &users.join(" ")];
        let fields = fields.map(|field| field.as_bytes().to_vec());
        Entry::decode(EntryId { ms: 1, sequence }, Some(fields.into()))
    }

    fn users(claims: &[LoggedClaim]) -> Vec<i64> {
        claims.iter().map(|claim| claim.user_id.get()).collect()
    }

    fn finish(open: &mut OpenEntries, claims: &[LoggedClaim]) -> Vec<(u64, u64)> {
        let finished = open.finish(claims.iter().map(|claim| claim.place.entry));
        finished.into_iter().map(|(id, counted)| (id.sequence, counted)).collect()
    }

    #[test]
    fn an_entry_is_finished_with_its_last_position() {
        let mut open = OpenEntries::default();
        open.add(vec![entry(0, &[1, 2, 3]), entry(1, &[4])]);
        let first = open.take(2);
        assert_eq!(users(&first.claims), [1, 2]);
        assert_eq!(finish(&mut open, &first.claims), []);
        let second = open.take(2);
        assert_eq!(users(&second.claims), [3, 4]);
        assert_eq!(finish(&mut open, &second.claims[1..]), [(1, 1)]);
        assert_eq!(finish(&mut open, &second.claims[..1]), [(0, 3)]);
        assert_eq!(open.len(), 0);
    }

    #[test]
    fn an_entry_that_is_read_again_keeps_its_finished_positions() {
        let mut open = OpenEntries::default();
        open.add(vec![entry(0, &[1, 2, 3])]);
        let first = open.take(1);
        finish(&mut open, &first.claims);
        open.add(vec![entry(0, &[1, 2, 3])]);
        assert_eq!(open.len(), 1);
        assert_eq!(users(&open.take(10).claims), [2, 3]);
    }

    #[test]
    fn a_failed_batch_comes_again_and_a_contended_claim_later() {
        let mut open = OpenEntries::default();
        open.add(vec![entry(0, &[1, 2, 3, 4])]);
        let batch = open.take(3);
        open.put_back(batch);
        let mut batch = open.take(3);
        assert_eq!(users(&batch.claims), [1, 2, 3]);
        let contended = batch.claims.remove(1);
        open.contend([contended]);
        assert_eq!(finish(&mut open, &batch.claims), []);
        let rest = open.take(10);
        assert_eq!(users(&rest.claims), [4]);
        assert_eq!(finish(&mut open, &rest.claims), []);
        open.retry_contended();
        let rest = open.take(10);
        assert_eq!(users(&rest.claims), [2]);
        assert_eq!(finish(&mut open, &rest.claims), [(0, 4)]);
    }

    /// The second user isn't a number.
    fn entry_with_junk(sequence: u64) -> Entry {
        let fields = ["coupon", "1024", "first", "1", "order", "7", "users", "1 junk 3"];
        let fields = fields.map(|field| field.as_bytes().to_vec());
        Entry::decode(EntryId { ms: 1, sequence }, Some(fields.into()))
    }

    #[test]
    fn positions_that_can_not_be_read_count_and_come_with_the_next_batch() {
        let mut open = OpenEntries::default();
        open.add(vec![entry_with_junk(0), entry(1, &[4])]);
        assert_eq!((open.waiting(), open.len(), open.has_contended()), (3, 2, false));
        let batch = open.take(1);
        assert_eq!((batch.len(), batch.unreadable.len(), open.waiting()), (2, 1, 2));
        let id = batch.unreadable[0].place.entry;
        open.put_back(batch);
        let batch = open.take(2);
        assert_eq!((users(&batch.claims), batch.unreadable.len()), (vec![1, 3], 1));
        assert_eq!(finish(&mut open, &batch.claims), [], "a position is left");
        assert_eq!(open.finish([id]), [(id, 3)]);
        assert_eq!(open.finish([id]), [], "an entry is finished once");
        assert_eq!(open.take(5).len(), 1);
        assert_eq!(Batch::default().len(), 0);
    }

    #[test]
    fn the_next_read_is_as_large_as_the_last_entries_suggest() {
        let mut open = OpenEntries::default();
        assert_eq!(
            (open.entries_for(7), open.entries_for(256), open.entries_for(257)),
            (7, 256, 256)
        );
        open.add(vec![entry(0, &[1, 2, 3]), entry(1, &[4, 5, 6])]);
        for (claims, entries) in [(0, 1), (1, 1), (5, 1), (6, 2), (9, 3), (3_000, 256)] {
            assert_eq!(open.entries_for(claims), entries, "{claims} claims");
        }
        open.add(Vec::new());
        assert_eq!(open.entries_for(9), 3, "nothing was read");
        open.add(vec![entry(2, &[7])]);
        assert_eq!(open.entries_for(9), 9);
    }
}
