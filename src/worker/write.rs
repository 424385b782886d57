//! The write pass: entries become rows, and only then are they acknowledged.
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
//! * Killed before the commit: nothing was written; another worker takes the entries over.
//! * Killed between commit and acknowledgement: they are taken over too, found to be rows, and
//!   acknowledged.
//! * A lock held elsewhere: the entry stays pending and comes up again from our own pending list (`>`
//!   would never return it).
//! * An entry that Postgres refuses: the batch is written coupon by coupon. Of a coupon without a sale all entries become
//!   dead letters, and of one with too few units those that there is none for, each in one statement, however many
//!   they are. Anything else is halved until the culprit stands alone. The others become rows in the same pass.
//! * Postgres or Redis away: the pass fails as a whole and is repeated. How often an entry has been
//!   delivered says nothing about it, so deliveries are never counted.
//!
//! # What is not promised
//!
//! The order in which rows appear, across batches.

use std::collections::{BTreeMap, BTreeSet};

use redisson_locks::BatchGuard;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{LaneWorker, PassError};
use crate::base::limits;
use crate::sale::ids::CouponId;
use crate::sale::log::LogEntry;
use crate::sale::order::dead_letter::{self, DeadLetter, Reason};
use crate::sale::order::insert::{NotWritten, Written};

/// What one write pass did.
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
    entries: Vec<&'a LogEntry>,
    /// Whether they are of one coupon, and may be more than it has units.
    overflows: bool,
}

impl<'a> Part<'a> {
    /// The next parts to try, when these entries were refused together.
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
fn by_coupon<'a>(entries: &[&'a LogEntry]) -> BTreeMap<CouponId, Vec<&'a LogEntry>> {
    let mut by_coupon: BTreeMap<CouponId, Vec<&LogEntry>> = BTreeMap::new();
    for entry in entries {
        if let Ok(claim) = &entry.claim {
            by_coupon.entry(claim.coupon_id).or_default().push(entry);
        }
    }
    by_coupon
}

impl LaneWorker {
    /// Writes one batch, if there is one.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer. What had been written has been acknowledged or will be found; the
    /// rest is still pending.
    pub async fn write_pass(&mut self) -> Result<WriteReport, PassError> {
        self.require_postgres().await?;
        let entries = self.next_entries().await.inspect_err(|_| self.read_pending_again())?;
        if entries.is_empty() {
            return Ok(WriteReport::default());
        }
        let written = self.write(&entries).await;
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

    /// Our own pending entries first, if there may be any, then new ones.
    async fn next_entries(&mut self) -> Result<Vec<LogEntry>, PassError> {
        let count = self.batch_orders;
        self.has_read = true;
        let is_due = Instant::now() >= self.pending_not_before;
        if let Some(from) = self.pending_from.clone().filter(|_| is_due) {
            let pending = self.log.read_pending(count, &from).await?;
            if let Some(last) = pending.last() {
                self.pending_from = Some(last.id.clone());
                return Ok(pending);
            }
            // The round is over. Another one is due only if it left something behind.
            self.pending_from = (self.contended > 0).then(|| "0".into());
            self.contended = 0;
        }
        Ok(self.log.read_new(count).await?)
    }

    async fn write(&mut self, entries: &[LogEntry]) -> Result<WriteReport, PassError> {
        let mut report = WriteReport { entries: entries.len(), ..WriteReport::default() };
        let (decoded, unreadable): (Vec<_>, Vec<_>) =
            entries.iter().partition(|entry| entry.claim.is_ok());
        let mut finished = Vec::with_capacity(entries.len());
        self.put_aside(self.unreadable(&unreadable), &mut report, &mut finished).await?;
        let guard = self.lock_buyers(&decoded).await?;
        let (ours, contended): (Vec<_>, Vec<_>) = decoded
            .into_iter()
            .partition(|entry| self.lock_key(entry).is_some_and(|key| guard.holds(&key)));
        report.contended = contended.len();
        let written = self.write_splitting(&ours, guard.lost(), &mut report, &mut finished).await;
        // Which of a mixed batch are new isn't known; they are few.
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

    async fn lock_buyers(&self, entries: &[&LogEntry]) -> Result<BatchGuard, PassError> {
        // One user may have claimed several coupons of this lane: one lock for all of them.
        let keys: BTreeSet<String> =
            entries.iter().filter_map(|entry| self.lock_key(entry)).collect();
        Ok(self.app.locks.try_acquire_batch(keys.into_iter().collect()).await?)
    }

    fn lock_key(&self, entry: &LogEntry) -> Option<String> {
        let user = entry.claim.as_ref().ok()?.user_id;
        Some(self.app.stores.keys.order_lock(self.log.lane(), user))
    }

    /// Writes, and says what can be acknowledged. What Postgres refuses is taken apart until the culprits are dead letters.
    async fn write_splitting<'a>(
        &mut self,
        entries: &[&'a LogEntry],
        locks_lost: &CancellationToken,
        report: &mut WriteReport,
        finished: &mut Vec<&'a str>,
    ) -> Result<(), PassError> {
        let mut parts = self.parts(entries);
        while let Some(part) = parts.pop() {
            if part.entries.is_empty() {
                continue;
            }
            let (lane, orders) = (self.log.lane(), &self.app.orders);
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
    fn parts<'a>(&self, entries: &[&'a LogEntry]) -> Vec<Part<'a>> {
        let is_known = |entry: &&LogEntry| {
            entry.claim.as_ref().is_ok_and(|claim| self.overflowing.contains(&claim.coupon_id))
        };
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
            // As many as there are units for have not been tried yet.
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
        if let (true, Ok(claim)) = (part.overflows, &part.entries[0].claim) {
            match oversold {
                0 => self.overflowing.remove(&claim.coupon_id),
                _ => self.overflowing.insert(claim.coupon_id),
            };
        }
        finished.extend(part.entries.iter().map(|entry| entry.id.as_str()));
    }

    fn letters<'a>(
        &self,
        entries: &[&'a LogEntry],
        reason: Reason,
        detail: &str,
    ) -> Vec<DeadLetter<'a>> {
        let lane = self.log.lane();
        let letter = |entry| DeadLetter { lane, entry, reason, detail: detail.to_owned() };
        entries.iter().copied().map(letter).collect()
    }

    /// What can't be read, as letters.
    fn unreadable<'a>(&self, entries: &[&'a LogEntry]) -> Vec<DeadLetter<'a>> {
        let lost = entries.iter().filter(|entry| entry.is_lost()).count();
        self.app.metrics.data_lost.increment(lost as u64);
        let letter = |&entry: &&'a LogEntry| {
            let (reason, detail) = match entry.claim.as_ref().err() {
                Some(why) if !entry.is_lost() => (Reason::Undecodable, *why),
                _ => (
                    Reason::DeletedFromLog,
                    "the entry was deleted from the log while it was pending",
                ),
            };
            DeadLetter { lane: self.log.lane(), entry, reason, detail: detail.to_owned() }
        };
        entries.iter().map(letter).collect()
    }

    /// Puts entries aside, a part at a time, and says so in one line for each.
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
                let DeadLetter { lane, entry, reason, detail } = &part[0];
                tracing::error!(%lane, entries = new, first = entry.id, %reason, detail, "entries of the order log can't become orders; they are dead letters now");
            }
            finished.extend(part.iter().map(|letter| letter.entry.id.as_str()));
        }
        Ok(())
    }

    /// Requests of this process may wait for one of these orders.
    fn tell_waiters(&self, written: &[&LogEntry]) {
        let claims = written.iter().filter_map(|entry| entry.claim.as_ref().ok());
        self.app.order_waiters.written(claims.map(|claim| claim.order_id));
    }

    /// How long it took from these claims to their rows. Claims of one millisecond are counted together.
    fn time_rows(&self, written: &[&LogEntry]) {
        let claimed_at = |entry: &LogEntry| entry.claim.as_ref().ok().map(|claim| claim.claimed_at);
        let now = self.app.clock.now();
        for together in written.chunk_by(|a, b| claimed_at(a) == claimed_at(b)) {
            let waited = claimed_at(together[0]).map(|at| (now - at).to_std().unwrap_or_default());
            let histogram = &self.app.metrics.claim_to_row_seconds;
            histogram.record_many(waited.unwrap_or_default(), together.len());
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
