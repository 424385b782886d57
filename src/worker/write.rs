//! The write pass: entries become rows, and are acknowledged after that.
//!
//! # Model
//!
//! An entry is *unread*, then *pending* for one consumer from the moment Redis hands it out, and gone
//! from the group once it is acknowledged. A pass takes a batch, tries the lock of each buyer, writes the
//! entries whose lock it holds in one transaction, and acknowledges them.
//!
//! # Authority
//!
//! Postgres decides: primary key, unique index, `sold + n <= total`. The buyers' locks spare two workers
//! the work of waiting for each other's rows; without them the result would be the same.
//!
//! # What each failure does
//!
//! * Worker killed before the commit: nothing was written; another worker takes the entries over.
//! * Worker killed between commit and acknowledgement: another worker takes the entries over, finds that they are
//!   rows, and acknowledges them.
//! * Lock held elsewhere: the entry stays pending and comes up again from the own pending list (`>` would never
//!   return it).
//! * Row of a sale locked by another session: the claims on the sale wait in the same way, and those on other sales
//!   become rows in the same pass.
//! * Entry that Postgres refuses: the batch is written coupon by coupon. Without a sale, all entries of a coupon
//!   become dead letters; where entries exceed units, the surplus does. Either takes one statement. Any other batch
//!   is halved until the culprit stands alone. The other entries become rows in the same pass.
//! * Postgres or Redis away: the pass fails as a whole and is repeated. The number of deliveries says nothing about
//!   an entry, so deliveries are never counted.
//!
//! # What is not promised
//!
//! Across batches, rows may appear in any order.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use redisson_locks::{BatchGuard, Names};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::open_entries::{Batch, OpenEntries};
use super::{LaneWorker, PassError};
use crate::base::limits;
use crate::kit::postgres;
use crate::sale::coupon::stock;
use crate::sale::ids::{CouponId, OrderId};
use crate::sale::log::{EntryId, LoggedClaim, Unreadable, Why};
use crate::sale::order::dead_letter::{self, DeadLetter, Reason};
use crate::sale::order::insert::{NotWritten, Written};
use crate::sale::trace::notes::TracedBatch;

/// Result of one write pass, in positions of entries: a position is a claim, or can't be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteReport {
    /// Positions looked at.
    pub positions: usize,
    /// New rows.
    pub inserted: usize,
    /// Positions that were rows or dead letters already.
    pub repeated: usize,
    /// New dead letters.
    pub dead_letters: usize,
    /// Claims left over, because their lock is held elsewhere.
    pub contended: usize,
}

/// State of a batch.
#[derive(Default)]
struct Progress {
    report: WriteReport,
    /// Positions that are neither finished nor contended.
    left: Batch,
    /// Entries of positions that are rows or dead letters now, an entry once for each position.
    finished: Vec<EntryId>,
    /// Claims on sales whose rows turned out to be locked.
    locked: Vec<LoggedClaim>,
    /// A claim that became a row.
    last: Option<LoggedClaim>,
    /// Locks of the buyers.
    guard: Option<BatchGuard>,
    /// Facts about the batch, once it is written.
    written: Option<Followed>,
}

/// Facts about a written batch, for claims that are followed.
struct Followed {
    locked_at: Instant,
    committed_at: Instant,
    /// Claims that this worker has written; none, if it can't tell them from those that it found to be rows.
    claims: Vec<(OrderId, EntryId)>,
}

/// Claims that are written together.
struct Part {
    claims: Vec<LoggedClaim>,
    /// Whether these claims are of one coupon, and may be more than it has units.
    overflows: bool,
}

impl Part {
    /// The next parts to try after Postgres has refused these claims together.
    fn taken_apart(self, reason: Reason) -> Vec<Self> {
        let by_coupon = by_coupon(&self.claims);
        // In a part of one sale its units have changed meanwhile: the same claims are tried again.
        let overflows = reason == Reason::Oversold;
        if overflows || by_coupon.len() > 1 {
            let parts = by_coupon.into_values();
            return parts.map(|claims| Self { claims, overflows }).collect();
        }
        let (first, second) = self.claims.split_at(self.claims.len() / 2);
        let halves = [second, first].map(<[_]>::to_vec);
        halves.map(|claims| Self { claims, overflows: false }).into()
    }
}

/// Reason why claims that were to be written together have to be taken apart.
enum TakeApart {
    /// Postgres refuses some of them.
    Refused(Reason),
    /// Another session keeps the rows of some of their sales locked.
    Locked,
}

/// Takes the claims on these sales out of others.
fn extract(claims: &mut Vec<LoggedClaim>, sales: &BTreeSet<CouponId>) -> Vec<LoggedClaim> {
    claims.extract_if(.., |claim| sales.contains(&claim.coupon_id)).collect()
}

/// The claims on each coupon.
fn by_coupon(claims: &[LoggedClaim]) -> BTreeMap<CouponId, Vec<LoggedClaim>> {
    let mut by_coupon: BTreeMap<CouponId, Vec<LoggedClaim>> = BTreeMap::new();
    for claim in claims {
        by_coupon.entry(claim.coupon_id).or_default().push(*claim);
    }
    by_coupon
}

impl LaneWorker {
    /// Writes one batch, if there is one.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer. Entries of which every position had been written are acknowledged, or will be
    /// found to be rows; the rest is still pending.
    pub async fn write_pass(&mut self) -> Result<WriteReport, PassError> {
        self.require_postgres().await?;
        self.learn_epoch();
        let batch = self.next_batch().await.inspect_err(|error| self.read_again_after(error))?;
        if batch.len() == 0 {
            if self.open.is_empty() {
                self.tried.clear();
            }
            return Ok(WriteReport::default());
        }
        let written = match self.require_epoch().await {
            Ok(()) => self.write(batch).await,
            Err(error) => Err(error),
        };
        self.adapt_batch(written.is_ok());
        self.postgres_away = matches!(written, Err(PassError::Postgres(_)));
        let report = written.inspect_err(|error| self.read_again_after(error))?;
        // Claims that were contended before don't wait for those that are found to be now.
        if report.contended > 0 && Instant::now() >= self.contended_not_before {
            self.contended_not_before = Instant::now() + limits::CONTENTION_PAUSE;
        }
        self.count(&report);
        Ok(report)
    }

    /// Entries that were read in another epoch are read again: Redis may have others now.
    fn learn_epoch(&mut self) {
        let epoch = self.app.lanes.epoch(self.log.lane());
        if epoch != self.epoch {
            self.epoch = epoch;
            self.open = OpenEntries::default();
            self.tried.clear();
            self.read_pending_again();
        }
    }

    /// Fails if Redis doesn't have the epoch yet in which the entries were read: a recovery has raised it in Postgres, and
    /// looks at what Redis has only after Redis has it, too. Until then Redis may lose entries that no look has seen.
    async fn require_epoch(&self) -> Result<(), PassError> {
        if self.log.epoch().await? == Some(self.epoch) { Ok(()) } else { Err(PassError::Stale) }
    }

    /// Has the own pending entries read again. A Redis that failed may come back with other entries under the same ids,
    /// so nothing is remembered of them then.
    fn read_again_after(&mut self, error: &PassError) {
        if let PassError::Redis(_) | PassError::Stale = error {
            self.open = OpenEntries::default();
        }
        self.read_pending_again();
    }

    fn adapt_batch(&mut self, written: bool) {
        let batch = if written { self.batch_orders * 2 } else { self.batch_orders / 2 };
        self.batch_orders = batch.clamp(1, self.settings.batch_orders_max);
    }

    /// Claims that were left over first; then those of own pending entries, if there may be any; then those of new
    /// ones.
    async fn next_batch(&mut self) -> Result<Batch, PassError> {
        if Instant::now() >= self.contended_not_before {
            self.retry_contended().await?;
        }
        while self.open.waiting() < self.batch_orders && self.read_more().await? {}
        Ok(self.open.take(self.batch_orders))
    }

    /// Lets contended claims wait for the next batch, unless the rows of their sales are locked still.
    async fn retry_contended(&mut self) -> Result<(), PassError> {
        self.locked = stock::locked_among(&self.app.stores.pool, self.locked.clone()).await?;
        self.open.retry_contended(&self.locked);
        if !self.locked.is_empty() {
            self.contended_not_before = Instant::now() + limits::LOCKED_SALES_PAUSE;
        }
        Ok(())
    }

    /// Reads entries. False if there were no more of them.
    async fn read_more(&mut self) -> Result<bool, PassError> {
        self.has_read = true;
        let count = self.open.entries_for(self.batch_orders - self.open.waiting());
        if let Some(from) = self.pending_from {
            let pending = self.log.read_pending(count, from).await?;
            if !pending.is_empty() {
                self.read_at = Instant::now();
            }
            self.pending_from = pending.last().map(|entry| entry.id);
            self.open.add(pending);
            return Ok(true);
        }
        let new = self.log.read_new(count).await?;
        if !new.is_empty() {
            self.read_at = Instant::now();
        }
        let is_full = new.len() == count;
        self.open.add(new);
        Ok(is_full)
    }

    /// Writes a batch, acknowledges what is finished, and keeps what is left for the next batch, also after a failure.
    async fn write(&mut self, batch: Batch) -> Result<WriteReport, PassError> {
        let taken_at = Instant::now();
        let report = WriteReport { positions: batch.len(), ..WriteReport::default() };
        let mut progress = Progress { report, left: batch, ..Progress::default() };
        let written = self.write_what_is_left(&mut progress).await;
        self.open.put_back(progress.left);
        let finished = self.open.finish(progress.finished);
        let released = async {
            if let Some(guard) = progress.guard {
                guard.release().await;
            }
        };
        // Sent together, so that Redis syncs its file once for both.
        let (acknowledged, ()) =
            tokio::join!(self.log.acknowledge(&finished, progress.last.as_ref()), released);
        if let Some(followed) = progress.written {
            let finished = if acknowledged.is_ok() { &finished[..] } else { &[] };
            self.note_batch(taken_at, followed, finished);
        }
        written?;
        acknowledged?;
        Ok(progress.report)
    }

    async fn write_what_is_left(&mut self, progress: &mut Progress) -> Result<(), PassError> {
        let letters = self.unreadable(&progress.left.unreadable).await?;
        self.put_aside(letters, progress).await?;
        progress.left.unreadable.clear();

        let locked = extract(&mut progress.left.claims, &self.locked);
        progress.report.contended = locked.len();
        self.open.contend(locked);

        let guard = self.lock_buyers(&progress.left.claims).await?;
        let locked_at = Instant::now();
        let claims = std::mem::take(&mut progress.left.claims);
        let mut contended = Vec::new();
        let mut ours = Vec::with_capacity(claims.len());
        for (position, claim) in claims.into_iter().enumerate() {
            let of_lock = if guard.holds_at(position) { &mut ours } else { &mut contended };
            of_lock.push(claim);
        }
        let locks_lost = guard.lost().clone();
        progress.guard = Some(guard);
        let written = self.write_splitting(&ours, &locks_lost, progress).await;
        let locked: HashSet<OrderId> = progress.locked.iter().map(|claim| claim.order_id).collect();
        ours.retain(|claim| !locked.contains(&claim.order_id));
        contended.append(&mut progress.locked);
        progress.report.contended += contended.len();
        self.open.contend(contended);
        if progress.report.inserted > 0 {
            self.tell_waiters(&ours);
        }
        if written.is_err() {
            self.tried.extend(ours.iter().map(|claim| claim.order_id));
            return written;
        }
        let new = self.written_here(&ours, progress.report);
        self.time_rows(new);
        let claims = new.iter().map(|claim| (claim.order_id, claim.place.entry)).collect();
        progress.written = Some(Followed { locked_at, committed_at: Instant::now(), claims });
        Ok(())
    }

    /// These claims if this worker has made all of their rows, or else none: a mixed batch, which is rare, doesn't tell
    /// which of its rows are new. A row may be of a commit that wasn't heard, when the worker tried the claim before.
    fn written_here<'a>(
        &mut self,
        claims: &'a [LoggedClaim],
        report: WriteReport,
    ) -> &'a [LoggedClaim] {
        let tried = claims.iter().filter(|claim| self.tried.remove(&claim.order_id)).count();
        let is_all = report.inserted + tried.min(report.repeated) >= claims.len();
        if is_all { claims } else { &[] }
    }

    /// The lock at each position is that of the claim there. In memory only: they spare work, and decide nothing.
    async fn lock_buyers(&self, claims: &[LoggedClaim]) -> Result<BatchGuard, PassError> {
        let (keys, lane) = (&self.app.stores.keys, self.log.lane());
        let names = claims.iter().map(|claim| keys.order_lock_name(lane, claim.user_id));
        Ok(self.app.locks.batch(names.collect::<Names>()).volatile().try_acquire().await?)
    }

    /// Writes claims, and notes those that are finished. Claims that Postgres refuses are taken apart until the culprits
    /// are dead letters. After a failure, the claims that weren't tried are left.
    async fn write_splitting(
        &mut self,
        claims: &[LoggedClaim],
        locks_lost: &CancellationToken,
        progress: &mut Progress,
    ) -> Result<(), PassError> {
        let mut parts = self.parts(claims);
        while let Some(part) = parts.pop() {
            if part.claims.is_empty() {
                continue;
            }
            match self.write_part(&part, locks_lost, progress).await {
                Ok(None) => {}
                Ok(Some(TakeApart::Refused(reason))) => parts.extend(part.taken_apart(reason)),
                Ok(Some(TakeApart::Locked)) => {
                    let Part { mut claims, overflows } = part;
                    progress.locked.append(&mut extract(&mut claims, &self.locked));
                    parts.push(Part { claims, overflows });
                }
                Err(error) => {
                    parts.push(part);
                    let left = parts.into_iter().flat_map(|part| part.claims);
                    progress.left.claims.extend(left);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Writes claims together. Returns the reason if they have to be taken apart.
    async fn write_part(
        &mut self,
        part: &Part,
        locks_lost: &CancellationToken,
        progress: &mut Progress,
    ) -> Result<Option<TakeApart>, PassError> {
        let lane = self.log.lane();
        let held = (lane, self.epoch);
        let orders = &self.app.orders;
        let written = match part.overflows {
            true => orders.write_what_fits(held, &part.claims, locks_lost).await,
            false => orders.write(held, &part.claims, locks_lost).await,
        };
        match written {
            Ok(written) => self.note_written(part, written, progress),
            Err(NotWritten::Poison(reason, detail)) => {
                if !self.is_hopeless(part, reason).await? {
                    return Ok(Some(TakeApart::Refused(reason)));
                }
                let letter = |claim| DeadLetter::of_claim(lane, claim, reason, &detail);
                self.put_aside(part.claims.iter().map(letter).collect(), progress).await?;
            }
            Err(NotWritten::LocksLost) => return Err(PassError::LocksLost),
            Err(NotWritten::Stale) => {
                self.app.lanes.refresh().await.ok();
                return Err(PassError::Stale);
            }
            Err(NotWritten::Postgres(error)) if postgres::is_lock_timeout(&error) => {
                if !self.finds_locked(&part.claims).await? {
                    return Err(error.into());
                }
                return Ok(Some(TakeApart::Locked));
            }
            Err(NotWritten::Postgres(error)) => return Err(error.into()),
        }
        Ok(None)
    }

    /// Looks for locked sales among those of these claims. Their claims wait from now on. Returns whether there are any.
    async fn finds_locked(&mut self, claims: &[LoggedClaim]) -> Result<bool, PassError> {
        let coupons = by_coupon(claims).into_keys();
        let mut found = stock::locked_among(&self.app.stores.pool, coupons).await?;
        if let Some(coupon) = found.first() {
            let (lane, sales) = (self.log.lane(), found.len());
            tracing::error!(%lane, %coupon, sales, "ALARM: another session keeps the row of a sale locked in Postgres; its claims wait in the order log, and all others go on: look for that session (docs/operate.md)");
        }
        let is_any = !found.is_empty();
        self.locked.append(&mut found);
        Ok(is_any)
    }

    /// The claims on sales that had too few units a moment ago, and the others together.
    fn parts(&self, claims: &[LoggedClaim]) -> Vec<Part> {
        let is_known = |claim: &LoggedClaim| self.overflowing.contains(&claim.coupon_id);
        let (known, others): (Vec<_>, Vec<_>) = claims.iter().copied().partition(is_known);
        let known = by_coupon(&known).into_values();
        let mut parts: Vec<Part> = known.map(|claims| Part { claims, overflows: true }).collect();
        parts.push(Part { claims: others, overflows: false });
        parts
    }

    /// Whether none of these claims, which were refused together, can become an order.
    async fn is_hopeless(&self, part: &Part, reason: Reason) -> Result<bool, PassError> {
        let coupons: Vec<CouponId> = by_coupon(&part.claims).into_keys().collect();
        Ok(match (reason, &coupons[..]) {
            // Not all of them fit, or the units of the sale have changed meanwhile: nothing was written.
            (Reason::Oversold, _) => false,
            _ if part.claims.len() == 1 => true,
            (Reason::Invalid, [coupon]) => !self.app.orders.has_sale(*coupon).await?,
            _ => false,
        })
    }

    fn note_written(
        &mut self,
        part: &Part,
        Written { inserted, repeated, conflicts, oversold, before_mark }: Written,
        progress: &mut Progress,
    ) {
        if inserted == part.claims.len() {
            progress.last = part.claims.last().copied().or(progress.last);
        }
        let report = &mut progress.report;
        report.inserted += inserted;
        report.repeated += repeated;
        report.dead_letters += conflicts + oversold + before_mark;
        let lane = self.log.lane();
        if conflicts > 0 {
            tracing::error!(%lane, claims = conflicts, "claims in the order log contradict orders that are there; they are dead letters now");
        }
        if oversold > 0 {
            tracing::error!(%lane, claims = oversold, first = %part.claims[0].place.entry, "the order log has more claims of a sale than it has units; they are dead letters now");
        }
        if before_mark > 0 {
            tracing::error!(%lane, claims = before_mark, "the order log has claims of archived sales that are as old as orders in the history, and no rows; they are dead letters now");
        }
        if part.overflows {
            let coupon = part.claims[0].coupon_id;
            match oversold {
                0 => self.overflowing.remove(&coupon),
                _ => self.overflowing.insert(coupon),
            };
        }
        progress.finished.extend(part.claims.iter().map(|claim| claim.place.entry));
    }

    /// Dead letters of positions that can't be read.
    async fn unreadable(&self, unreadable: &[Unreadable]) -> Result<Vec<DeadLetter>, PassError> {
        let mut letters = Vec::with_capacity(unreadable.len());
        for position in unreadable {
            letters.push(self.letter_of(position).await?);
        }
        let is_lost = |position: &&Unreadable| position.why == Why::Lost;
        let lost = unreadable.iter().filter(is_lost).count();
        self.app.metrics.data_lost.increment(lost as u64);
        Ok(letters)
    }

    /// Dead letter of a position that can't be read. That of a lost entry names its orders, as far as they are known.
    pub(super) async fn letter_of(&self, position: &Unreadable) -> Result<DeadLetter, PassError> {
        let numbers = match position.why {
            Why::Lost => self.log.numbers_lost(position.place.entry).await?,
            Why::Malformed(_) => String::new(),
        };
        Ok(DeadLetter::unreadable(self.log.lane(), position, &numbers))
    }

    /// Turns positions into dead letters, a part at a time, with one log line for each part.
    async fn put_aside(
        &self,
        letters: Vec<DeadLetter>,
        progress: &mut Progress,
    ) -> Result<(), PassError> {
        for part in letters.chunks(limits::DEAD_LETTERS_AT_A_TIME) {
            let new = dead_letter::insert_all(&self.app.stores.pool, part).await?;
            progress.report.dead_letters += new;
            progress.report.repeated += part.len() - new;
            if new > 0 {
                let lane = self.log.lane();
                let first = &part[0];
                tracing::error!(%lane, claims = new, first = %first.entry(), reason = %first.reason(), detail = first.detail(), "claims in the order log can't become orders; they are dead letters now");
            }
        }
        // All or none of them: a part that failed is put aside again, and its letters are found to be there.
        progress.finished.extend(letters.iter().map(DeadLetter::entry));
        Ok(())
    }

    /// Notes a batch for the claims that are followed, with the entries that have been acknowledged after it.
    fn note_batch(&self, taken_at: Instant, batch: Followed, finished: &[(EntryId, u64)]) {
        let Followed { locked_at, committed_at, claims } = batch;
        self.app.traces.note_batch(TracedBatch {
            worker: self.log.consumer().to_owned(),
            read_at: self.read_at.min(taken_at),
            taken_at,
            locked_at,
            committed_at,
            acknowledged: (Instant::now(), finished.iter().map(|(entry, _)| *entry).collect()),
            claims,
        });
    }

    /// Tells the requests of this process that wait for one of these orders.
    fn tell_waiters(&self, written: &[LoggedClaim]) {
        self.app.order_waiters.written(written.iter().map(|claim| claim.order_id));
    }

    /// Records the time from these claims to their rows. Claims of one millisecond are counted together.
    fn time_rows(&self, written: &[LoggedClaim]) {
        let now = self.app.clock.now();
        for together in written.chunk_by(|a, b| a.claimed_at == b.claimed_at) {
            let waited = (now - together[0].claimed_at).to_std().unwrap_or_default();
            self.app.metrics.claim_to_row_seconds.record_many(waited, together.len());
            self.app.metrics.tally.to_rows.record(waited, together.len());
        }
    }

    fn count(&self, report: &WriteReport) {
        let metrics = &self.app.metrics;
        metrics.orders_written.increment(report.inserted as u64);
        metrics.tally.rows.add(report.inserted);
        metrics.orders_repeated.increment(report.repeated as u64);
        metrics.dead_letters.increment(report.dead_letters as u64);
        metrics.lock_contended.increment(report.contended as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sale::ids::UserId;

    fn claim(coupon: i64, order: i64) -> LoggedClaim {
        let (user, order) =
            (UserId::new(order).expect("an id"), OrderId::new(order).expect("an id"));
        LoggedClaim::without_entry(CouponId::compose(coupon, 1), user, order)
    }

    /// The orders of each part, and whether they may be too many.
    fn orders(parts: &[Part]) -> Vec<(Vec<i64>, bool)> {
        let ids = |part: &Part| part.claims.iter().map(|claim| claim.order_id.get()).collect();
        parts.iter().map(|part| (ids(part), part.overflows)).collect()
    }

    #[test]
    fn claims_on_some_sales_are_taken_out_of_others() {
        for (sales, taken, left) in [
            (&[][..], &[][..], &[11, 21, 12, 31][..]),
            (&[1, 3], &[11, 12, 31], &[21]),
            (&[4], &[], &[11, 21, 12, 31]),
        ] {
            let mut claims: Vec<_> =
                [(1, 11), (2, 21), (1, 12), (3, 31)].map(|(c, o)| claim(c, o)).into();
            let sales = sales.iter().map(|coupon| CouponId::compose(*coupon, 1)).collect();
            let found = extract(&mut claims, &sales);
            let ids = |claims: Vec<LoggedClaim>| -> Vec<i64> {
                claims.iter().map(|claim| claim.order_id.get()).collect()
            };
            assert_eq!((ids(found), ids(claims)), (taken.to_vec(), left.to_vec()), "{sales:?}");
        }
    }

    /// The last part is tried first.
    #[test]
    fn a_refused_part_is_taken_apart_by_coupon_and_then_in_halves() {
        let one = [(1, 11), (1, 12), (1, 13)];
        let two = [(1, 11), (2, 21), (1, 12)];
        for (claims, overflows, reason, parts) in [
            (&one[..], false, Reason::Invalid, vec![(vec![12, 13], false), (vec![11], false)]),
            (&one, false, Reason::Oversold, vec![(vec![11, 12, 13], true)]),
            (&one, true, Reason::Oversold, vec![(vec![11, 12, 13], true)]),
            (&one[..1], true, Reason::Oversold, vec![(vec![11], true)]),
            (&one, true, Reason::Invalid, vec![(vec![12, 13], false), (vec![11], false)]),
            (&two, false, Reason::Invalid, vec![(vec![11, 12], false), (vec![21], false)]),
            (&two, false, Reason::Oversold, vec![(vec![11, 12], true), (vec![21], true)]),
            (&one[..1], false, Reason::Oversold, vec![(vec![11], true)]),
            (&one[..2], false, Reason::Conflict, vec![(vec![12], false), (vec![11], false)]),
        ] {
            let part =
                Part { claims: claims.iter().map(|(c, o)| claim(*c, *o)).collect(), overflows };
            assert_eq!(orders(&part.taken_apart(reason)), parts, "{claims:?} {overflows} {reason}");
        }
    }
}
