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
//! * Entry that Postgres refuses: the batch is written coupon by coupon. Without a sale, all entries of a coupon
//!   become dead letters; where entries exceed units, the surplus does. Either takes one statement. Any other batch
//!   is halved until the culprit stands alone. The other entries become rows in the same pass.
//! * Postgres or Redis away: the pass fails as a whole and is repeated. The number of deliveries says nothing about
//!   an entry, so deliveries are never counted.
//!
//! # What is not promised
//!
//! Across batches, rows may appear in any order.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{LaneWorker, PassError};
use crate::base::limits;
use crate::kit::lock::reentrant::BatchGuard;
use crate::sale::ids::CouponId;
use crate::sale::log::{ClaimEntry, ReadBatch, Unreadable, UnreadableEntry};
use crate::sale::order::dead_letter::{self, DeadLetter, Reason};
use crate::sale::order::insert::{NotWritten, Written};

/// Result of one write pass, in entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteReport {
    /// Entries read.
    pub entries: usize,
    /// New rows.
    pub inserted: usize,
    /// Entries that were rows or dead letters already.
    pub repeated: usize,
    /// New dead letters.
    pub dead_letters: usize,
    /// Entries left pending, because their lock is held elsewhere.
    pub contended: usize,
}

/// Entries that are written together.
struct Part<'a> {
    entries: Vec<&'a ClaimEntry>,
    /// Whether these entries are of one coupon, and may be more than it has units.
    overflows: bool,
}

impl<'a> Part<'a> {
    /// The next parts to try after Postgres has refused these entries together.
    fn taken_apart(self, reason: Reason) -> Vec<Self> {
        let by_coupon = by_coupon(&self.entries);
        let overflows = reason == Reason::Oversold && !self.overflows;
        if overflows || by_coupon.len() > 1 {
            let parts = by_coupon.into_values();
            return parts.map(|entries| Self { entries, overflows }).collect();
        }
        let (first, second) = self.entries.split_at(self.entries.len() / 2);
        let halves = [second, first].map(<[_]>::to_vec);
        halves.map(|entries| Self { entries, overflows: false }).into()
    }
}

/// The entries of each coupon.
fn by_coupon<'a>(entries: &[&'a ClaimEntry]) -> BTreeMap<CouponId, Vec<&'a ClaimEntry>> {
    let mut by_coupon: BTreeMap<CouponId, Vec<&ClaimEntry>> = BTreeMap::new();
    for entry in entries {
        by_coupon.entry(entry.claim.coupon_id).or_default().push(entry);
    }
    by_coupon
}

impl LaneWorker {
    /// Writes one batch, if there is one.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer. Entries that had been written are acknowledged, or will be found to be rows; the
    /// rest is still pending.
    pub async fn write_pass(&mut self) -> Result<WriteReport, PassError> {
        self.require_postgres().await?;
        let batch = self.next_batch().await.inspect_err(|_| self.read_pending_again())?;
        if batch.is_empty() {
            return Ok(WriteReport::default());
        }
        let written = self.write(&batch).await;
        self.adapt_batch(written.is_ok());
        self.postgres_away = matches!(written, Err(PassError::Postgres(_)));
        let report = written.inspect_err(|_| self.read_pending_again())?;
        if report.contended > 0 {
            self.contended += report.contended;
            self.pending_not_before = Instant::now() + limits::CONTENTION_PAUSE;
            self.pending_from.get_or_insert_with(|| "0".into());
        }
        self.count(&report);
        Ok(report)
    }

    fn adapt_batch(&mut self, written: bool) {
        let batch = if written { self.batch_orders * 2 } else { self.batch_orders / 2 };
        self.batch_orders = batch.clamp(1, self.settings.batch_orders_max);
    }

    /// The own pending entries first, if there may be any; then new ones.
    async fn next_batch(&mut self) -> Result<ReadBatch, PassError> {
        let count = self.batch_orders;
        self.has_read = true;
        let is_due = Instant::now() >= self.pending_not_before;
        if let Some(from) = self.pending_from.clone().filter(|_| is_due) {
            let pending = self.log.read_pending(count, &from).await?;
            if pending.last.is_some() {
                self.pending_from.clone_from(&pending.last);
                return Ok(pending);
            }
            // The round is over. Another one is due only if entries of this one are left.
            self.pending_from = (self.contended > 0).then(|| "0".into());
            self.contended = 0;
        }
        Ok(self.log.read_new(count).await?)
    }

    async fn write(&mut self, batch: &ReadBatch) -> Result<WriteReport, PassError> {
        let mut report = WriteReport { entries: batch.len(), ..WriteReport::default() };
        let mut finished = Vec::with_capacity(batch.len());
        self.put_aside(self.unreadable(batch), &mut report, &mut finished).await?;
        let guard = self.lock_buyers(&batch.claims).await?;
        let (ours, contended): (Vec<_>, Vec<_>) =
            batch.claims.iter().partition(|entry| guard.holds(&self.lock_key(entry)));
        report.contended = contended.len();
        let written = self.write_splitting(&ours, guard.lost(), &mut report, &mut finished).await;
        // A mixed batch, which is rare, doesn't tell which of its rows are new.
        if report.inserted == ours.len() {
            self.time_rows(&ours);
        }
        if report.inserted > 0 {
            self.tell_waiters(&ours);
        }
        // Sent together, so that Redis syncs its file once for both.
        let (acknowledged, ()) =
            tokio::join!(self.log.acknowledge(finished.into_iter()), guard.release());
        written?;
        acknowledged?;
        Ok(report)
    }

    async fn lock_buyers(&self, entries: &[ClaimEntry]) -> Result<BatchGuard, PassError> {
        // One user may have claimed several coupons of this lane: one lock for all of them.
        let keys: BTreeSet<String> = entries.iter().map(|entry| self.lock_key(entry)).collect();
        Ok(self.app.locks.try_acquire_batch(keys.into_iter().collect()).await?)
    }

    fn lock_key(&self, entry: &ClaimEntry) -> String {
        self.app.stores.keys.order_lock(self.log.lane(), entry.claim.user_id)
    }

    /// Writes entries, and notes those that can be acknowledged. Entries that Postgres refuses are taken apart until
    /// the culprits are dead letters.
    async fn write_splitting<'a>(
        &mut self,
        entries: &[&'a ClaimEntry],
        locks_lost: &CancellationToken,
        report: &mut WriteReport,
        finished: &mut Vec<&'a str>,
    ) -> Result<(), PassError> {
        let mut parts = self.parts(entries);
        while let Some(part) = parts.pop() {
            if part.entries.is_empty() {
                continue;
            }
            let lane = self.log.lane();
            let orders = &self.app.orders;
            let written = match part.overflows {
                true => orders.write_what_fits(lane, &part.entries, locks_lost).await,
                false => orders.write(lane, &part.entries, locks_lost).await,
            };
            match written {
                Ok(written) => self.note_written(&part, written, report, finished),
                Err(NotWritten::Poison(reason, detail)) => {
                    if self.is_hopeless(&part, reason).await? {
                        let letters = self.letters(&part.entries, reason, &detail);
                        self.put_aside(letters, report, finished).await?;
                    } else {
                        parts.extend(part.taken_apart(reason));
                    }
                }
                Err(NotWritten::LocksLost) => return Err(PassError::LocksLost),
                Err(NotWritten::Postgres(error)) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The entries of sales that had too few units a moment ago, and the others together.
    fn parts<'a>(&self, entries: &[&'a ClaimEntry]) -> Vec<Part<'a>> {
        let is_known = |entry: &&ClaimEntry| self.overflowing.contains(&entry.claim.coupon_id);
        let (known, others): (Vec<_>, Vec<_>) = entries.iter().copied().partition(is_known);
        let known = by_coupon(&known).into_values();
        let mut parts: Vec<Part> = known.map(|entries| Part { entries, overflows: true }).collect();
        parts.push(Part { entries: others, overflows: false });
        parts
    }

    /// Whether none of these entries, which were refused together, can become an order.
    async fn is_hopeless(&self, part: &Part<'_>, reason: Reason) -> Result<bool, PassError> {
        let coupons: Vec<CouponId> = by_coupon(&part.entries).into_keys().collect();
        Ok(match (reason, &coupons[..]) {
            // The entries for which there are units have not been tried yet.
            (Reason::Oversold, _) if !part.overflows => false,
            _ if part.entries.len() == 1 => true,
            (Reason::Invalid, [coupon]) => !self.app.orders.has_sale(*coupon).await?,
            _ => false,
        })
    }

    fn note_written<'a>(
        &mut self,
        part: &Part<'a>,
        Written { inserted, repeated, conflicts, oversold }: Written,
        report: &mut WriteReport,
        finished: &mut Vec<&'a str>,
    ) {
        report.inserted += inserted;
        report.repeated += repeated;
        report.dead_letters += conflicts + oversold;
        let lane = self.log.lane();
        if conflicts > 0 {
            tracing::error!(%lane, entries = conflicts, "entries of the order log contradict orders that are there; they are dead letters now");
        }
        if oversold > 0 {
            tracing::error!(%lane, entries = oversold, first = part.entries[0].id, "the order log has more claims of a sale than it has units; they are dead letters now");
        }
        if part.overflows {
            let coupon = part.entries[0].claim.coupon_id;
            match oversold {
                0 => self.overflowing.remove(&coupon),
                _ => self.overflowing.insert(coupon),
            };
        }
        finished.extend(part.entries.iter().map(|entry| entry.id.as_str()));
    }

    fn letters<'a>(
        &self,
        entries: &[&'a ClaimEntry],
        reason: Reason,
        detail: &str,
    ) -> Vec<DeadLetter<'a>> {
        let lane = self.log.lane();
        entries.iter().map(|entry| DeadLetter::of_claim(lane, entry, reason, detail)).collect()
    }

    /// Dead letters of entries that can't be read.
    fn unreadable<'a>(&self, batch: &'a ReadBatch) -> Vec<DeadLetter<'a>> {
        let lane = self.log.lane();
        let is_lost = |entry: &&UnreadableEntry| entry.why == Unreadable::Lost;
        let lost = batch.unreadable.iter().filter(is_lost).count();
        self.app.metrics.data_lost.increment(lost as u64);
        batch.unreadable.iter().map(|entry| DeadLetter::unreadable(lane, entry)).collect()
    }

    /// Turns entries into dead letters, a part at a time, with one log line for each part.
    async fn put_aside<'a>(
        &self,
        letters: Vec<DeadLetter<'a>>,
        report: &mut WriteReport,
        finished: &mut Vec<&'a str>,
    ) -> Result<(), PassError> {
        for part in letters.chunks(limits::DEAD_LETTERS_AT_A_TIME) {
            let new = dead_letter::insert_all(&self.app.stores.pool, part).await?;
            report.dead_letters += new;
            report.repeated += part.len() - new;
            if new > 0 {
                let lane = self.log.lane();
                let first = &part[0];
                tracing::error!(%lane, entries = new, first = first.entry_id(), reason = %first.reason(), detail = first.detail(), "entries of the order log can't become orders; they are dead letters now");
            }
            finished.extend(part.iter().map(DeadLetter::entry_id));
        }
        Ok(())
    }

    /// Tells the requests of this process that wait for one of these orders.
    fn tell_waiters(&self, written: &[&ClaimEntry]) {
        self.app.order_waiters.written(written.iter().map(|entry| entry.claim.order_id));
    }

    /// Records the time from these claims to their rows. Claims of one millisecond are counted together.
    fn time_rows(&self, written: &[&ClaimEntry]) {
        let now = self.app.clock.now();
        for together in written.chunk_by(|a, b| a.claim.claimed_at == b.claim.claimed_at) {
            let waited = (now - together[0].claim.claimed_at).to_std().unwrap_or_default();
            self.app.metrics.claim_to_row_seconds.record_many(waited, together.len());
        }
    }

    fn count(&self, report: &WriteReport) {
        let metrics = &self.app.metrics;
        metrics.orders_written.increment(report.inserted as u64);
        metrics.orders_repeated.increment(report.repeated as u64);
        metrics.dead_letters.increment(report.dead_letters as u64);
        metrics.lock_contended.increment(report.contended as u64);
    }
}
