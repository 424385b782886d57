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
//! * An entry that Postgres refuses: the batch is halved until it stands alone; it becomes a dead letter,
//!   and the others become rows in the same pass.
//! * Postgres or Redis away: the pass fails as a whole and is repeated. How often an entry has been
//!   delivered says nothing about it, so deliveries are never counted.
//!
//! # What is not promised
//!
//! The order in which rows appear, across batches.

use std::collections::BTreeSet;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{LaneWorker, PassError};
use crate::base::limits;
use crate::kit::lock::reentrant::BatchGuard;
use crate::sale::dead_letter::{self, DeadLetter, Reason};
use crate::sale::order::{NotWritten, Written};
use crate::sale::order_log::LogEntry;

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

impl WriteReport {
    fn count_dead_letter(&mut self, new: bool) {
        let counted = if new { &mut self.dead_letters } else { &mut self.repeated };
        *counted += 1;
    }
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

    async fn write(&self, entries: &[LogEntry]) -> Result<WriteReport, PassError> {
        let mut report = WriteReport { entries: entries.len(), ..WriteReport::default() };
        let (decoded, unreadable): (Vec<_>, Vec<_>) =
            entries.iter().partition(|entry| entry.claim.is_ok());
        for entry in unreadable {
            report.count_dead_letter(self.put_aside_unreadable(entry).await?);
        }
        let guard = self.lock_buyers(&decoded).await?;
        let (ours, contended): (Vec<_>, Vec<_>) = decoded
            .into_iter()
            .partition(|entry| self.lock_key(entry).is_some_and(|key| guard.holds(&key)));
        report.contended = contended.len();
        let mut finished = Vec::with_capacity(ours.len());
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

    /// Writes, and says what can be acknowledged; halves what Postgres refuses until the culprit stands alone.
    async fn write_splitting<'a>(
        &self,
        entries: &[&'a LogEntry],
        locks_lost: &CancellationToken,
        report: &mut WriteReport,
        finished: &mut Vec<&'a str>,
    ) -> Result<(), PassError> {
        let mut parts = vec![entries];
        while let Some(part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            match self.app.orders.write(self.log.lane(), part, locks_lost).await {
                Ok(Written { inserted, repeated, conflicts }) => {
                    report.inserted += inserted;
                    report.repeated += repeated;
                    report.dead_letters += conflicts;
                    if conflicts > 0 {
                        let lane = self.log.lane();
                        tracing::error!(%lane, entries = conflicts, "entries of the order log contradict orders that are there; they are dead letters now");
                    }
                    finished.extend(part.iter().map(|entry| entry.id.as_str()));
                }
                Err(NotWritten::Poison(reason, detail)) if part.len() == 1 => {
                    report.count_dead_letter(self.put_aside(part[0], reason, detail).await?);
                }
                Err(NotWritten::Poison(..)) => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
                Err(NotWritten::LocksLost) => return Err(PassError::LocksLost),
                Err(NotWritten::Postgres(error)) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn put_aside_unreadable(&self, entry: &LogEntry) -> Result<bool, PassError> {
        if entry.is_lost() {
            self.app.metrics.data_lost.increment(1);
            let detail = "the entry was deleted from the log while it was pending".to_owned();
            return self.put_aside(entry, Reason::DeletedFromLog, detail).await;
        }
        let detail = entry.claim.as_ref().err().copied().unwrap_or_default().to_owned();
        self.put_aside(entry, Reason::Undecodable, detail).await
    }

    /// False if it had been put aside before.
    async fn put_aside(
        &self,
        entry: &LogEntry,
        reason: Reason,
        detail: String,
    ) -> Result<bool, PassError> {
        let letter = DeadLetter { lane: self.log.lane(), entry, reason, detail };
        let new = dead_letter::insert(&self.app.stores.pool, &letter).await?;
        if new {
            tracing::error!(lane = %letter.lane, entry = entry.id, %reason, detail = letter.detail, "an entry of the order log can't become an order; it is a dead letter now");
        }
        self.log.acknowledge(std::iter::once(entry.id.as_str())).await?;
        Ok(new)
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
