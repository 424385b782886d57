//! The write job: writes entries, and then acknowledges them.
//!
//! # Model
//!
//! An entry is *unread*, then *pending* once Redis has handed it out, and leaves the group when it is acknowledged. A
//! run takes a batch, tries the lock of each buyer, writes the claims whose lock it holds in one transaction, and
//! acknowledges the entries that this finishes.
//!
//! # Authority
//!
//! Postgres decides, by primary key, unique index and `sold + n <= total`. The buyers' locks only save a batch from
//! waiting for the rows of another batch or of a regular claim. Without them the result would be the same.
//!
//! # What each failure does
//!
//! * The worker dies before the commit: nothing was written. The lane's next owner reads the pending entries.
//! * The worker dies between commit and acknowledgement: the next owner finds the rows, and acknowledges the entries.
//! * A lock is held elsewhere: the claim is retried after a pause. Its entry stays pending.
//! * Another session holds the lock of a sale's row: claims on that sale wait in the same way, and the run writes those
//!   on other sales.
//! * A claim can't become a row (no sale, no unit left, the buyer's place taken): it becomes a dead letter, in the
//!   transaction that writes the others.
//! * Postgres refuses a claim: the run writes the batch coupon by coupon, and then in halves, until it has found the
//!   faulty claim, which becomes a dead letter. The same run writes the others.
//! * Postgres went back in time: it lacks the order that was acknowledged last. Nothing is written until an operator
//!   has decided.
//! * Postgres or Redis is away: the run fails as a whole, and is repeated. How often an entry was delivered says
//!   nothing about the entry, so deliveries are never counted.
//!
//! # What is not promised
//!
//! Across batches, rows may appear in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redisson_locks::{BatchGuard, Names};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::open_entries::Batch;
use super::state::{State, extract};
use super::{JobError, LaneWorker};
use crate::base::limits;
use crate::claim::trace::TracedBatch;
use crate::coupon::stock;
use crate::log::{Delivered, EntryId, LoggedClaim, Unreadable, Why};
use crate::order::dead_letter::{self, DeadLetter, Reason};
use crate::order::insert::{NotWritten, Written};
use crate::order::write::Origin;
use crate::store::ids::{CouponId, OrderId};
use crate::store::postgres;

/// Result of one run, in positions of entries: a position is a claim, or a part of an entry that can't be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteReport {
    /// Positions in the batch.
    pub positions: usize,
    pub inserted: usize,
    /// Positions that were rows or dead letters already.
    pub repeated: usize,
    pub dead_letters: usize,
    /// Claims left for later, because their buyer's lock or their sale's row is held elsewhere.
    pub contended: usize,
}

#[derive(Default)]
struct Progress {
    /// Epoch of the lane in which the entries were read.
    epoch: i64,
    report: WriteReport,
    /// Positions that are neither finished nor contended.
    left: Batch,
    /// Entries of positions that are rows or dead letters now, once for each position.
    finished: Vec<EntryId>,
    /// Sales whose rows turned out to be locked. None of their claims is written.
    locked: BTreeSet<CouponId>,
    /// The last claim that became a row: the lane notes it as acknowledged last.
    last: Option<LoggedClaim>,
    guard: Option<BatchGuard>,
    /// Times of the written batch, and its new orders, for traces of claims.
    written: Option<(TracedBatch, Vec<(OrderId, EntryId)>)>,
}

/// The parts to try after Postgres has refused these claims together: coupon by coupon, or two halves.
fn taken_apart(claims: &[LoggedClaim]) -> Vec<Vec<LoggedClaim>> {
    let by_coupon = by_coupon(claims);
    if by_coupon.len() > 1 {
        return by_coupon.into_values().collect();
    }
    let (first, second) = claims.split_at(claims.len() / 2);
    [second, first].map(<[_]>::to_vec).into()
}

fn by_coupon(claims: &[LoggedClaim]) -> BTreeMap<CouponId, Vec<LoggedClaim>> {
    let mut by_coupon: BTreeMap<CouponId, Vec<LoggedClaim>> = BTreeMap::new();
    for claim in claims {
        by_coupon.entry(claim.coupon_id).or_default().push(*claim);
    }
    by_coupon
}

impl LaneWorker {
    /// Reads a batch and writes it. For callers with one run at a time.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer. Entries whose positions have all been written are acknowledged, or will be
    /// recognised as rows; the others stay pending.
    pub async fn write_job(&mut self) -> Result<WriteReport, JobError> {
        self.learn_epoch();
        let written = async {
            match self.next_batch(Duration::ZERO).await? {
                (batch, _) if batch.len() == 0 => Ok(WriteReport::default()),
                (batch, _) => self.write(batch).await,
            }
        };
        written.await.inspect_err(|error| self.begin_anew(error))
    }

    /// The next claims to write, and whether they fill a batch: first claims left from earlier batches, then those of
    /// pending entries, then new ones. Waits up to `patience` if there are none.
    pub(super) async fn next_batch(&self, patience: Duration) -> Result<(Batch, bool), JobError> {
        self.state().retry_contended();
        while self.read_more(patience).await? {}
        let mut state = self.state();
        let most = state.batch_orders;
        let batch = state.open.take(most);
        let is_full = batch.len() >= most;
        Ok((batch, is_full))
    }

    /// Learns the epoch of the lane. Only while no run is under way.
    pub(super) fn learn_epoch(&self) -> i64 {
        let epoch = self.app.lanes.epoch(self.log.lane());
        self.state().learn_epoch(epoch);
        epoch
    }

    /// The lane has another epoch: learns it before the log is read again.
    async fn stale(&self) -> JobError {
        self.app.lanes.refresh().await.ok();
        JobError::Stale
    }

    /// Reads entries for the next batch. False if the batch is full, or there are no more entries.
    async fn read_more(&self, patience: Duration) -> Result<bool, JobError> {
        let (count, from, patience) = {
            let state = self.state();
            let State { open, batch_orders, pending_from, .. } = &*state;
            if open.waiting() >= *batch_orders {
                return Ok(false);
            }
            let patience = match (open.waiting(), open.has_contended()) {
                (0, false) => patience,
                (0, true) => patience.min(limits::CONTENTION_PAUSE),
                _ => Duration::ZERO,
            };
            (open.entries_for(*batch_orders - open.waiting()), *pending_from, patience)
        };
        let Delivered { entries: read, epoch, last } = match from {
            Some(from) => self.log.read_pending(count, from).await?,
            None => self.log.read_new(count, patience).await?,
        };
        // A recovery raises the epoch in Postgres, then in Redis, and reads the log only after that. What was read in
        // between mustn't be written: Redis could lose it without the recovery having seen it.
        if !read.is_empty() && epoch != Some(self.state().epoch) {
            return Err(self.stale().await);
        }
        let mut state = self.state();
        state.last = last;
        if !read.is_empty() {
            state.read_at = Instant::now();
        }
        let goes_on = from.is_some() || read.len() == count;
        if from.is_some() {
            state.pending_from = read.last().map(|entry| entry.id);
        }
        state.open.add(read);
        Ok(goes_on)
    }

    /// Writes a batch, acknowledges what is finished, and keeps the rest for the next batch, even after a failure.
    pub(super) async fn write(&self, batch: Batch) -> Result<WriteReport, JobError> {
        let epoch = self.state().epoch;
        let report = WriteReport { positions: batch.len(), ..WriteReport::default() };
        let mut progress = Progress { epoch, report, left: batch, ..Progress::default() };
        let written = self.write_what_is_left(&mut progress).await;
        let finished = {
            let mut state = self.state();
            state.untidied = true;
            state.adapt_batch(written.is_ok(), self.batch_orders_max);
            state.open.put_back(progress.left);
            state.open.finish(progress.finished)
        };
        let released = async {
            if let Some(guard) = progress.guard {
                guard.release().await;
            }
        };
        // Sent together, so that Redis syncs its file once for both.
        let acknowledged = self.log.acknowledge(epoch, &finished, progress.last.as_ref());
        let (acknowledged, ()) = tokio::join!(acknowledged, released);
        let is_acknowledged = matches!(acknowledged, Ok(true));
        if let Some((batch, claims)) = progress.written {
            let finished = if is_acknowledged { &finished[..] } else { &[] };
            let acknowledged = finished.iter().map(|(entry, _)| *entry);
            self.app.traces.note_batch(batch, claims, acknowledged);
        }
        written?;
        if !acknowledged? {
            return Err(self.stale().await);
        }
        if progress.report.contended > 0 {
            self.state().let_contended_wait(limits::CONTENTION_PAUSE);
        }
        self.count(&progress.report);
        Ok(progress.report)
    }

    async fn write_what_is_left(&self, progress: &mut Progress) -> Result<(), JobError> {
        let taken_at = Instant::now();
        progress.report.contended = self.state().leave_locked(&mut progress.left.claims);
        let guard = self.lock_buyers(&progress.left.claims).await?;
        let letters = self.unreadable(&progress.left.unreadable);
        self.put_aside(letters, progress).await?;
        progress.left.unreadable.clear();
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
        contended.extend(extract(&mut ours, &progress.locked));
        progress.report.contended += contended.len();
        self.state().open.contend(contended);
        if progress.report.inserted > 0 {
            self.tell_waiters(&ours);
        }
        written?;
        // A batch with repeats or dead letters, which is rare, doesn't tell which rows are new.
        let new = if progress.report.inserted >= ours.len() { &ours[..] } else { &[] };
        self.time_rows(new);
        let batch = TracedBatch {
            worker: std::process::id().to_string(),
            claims: new.len(),
            read_at: self.state().read_at.min(taken_at),
            taken_at,
            locked_at,
            committed_at: Instant::now(),
        };
        let claims = new.iter().map(|claim| (claim.order_id, claim.place.entry)).collect();
        progress.written = Some((batch, claims));
        Ok(())
    }

    /// Tries each buyer's lock once; positions in the guard are those in `claims`. The locks are volatile: they save
    /// work, and decide nothing.
    async fn lock_buyers(&self, claims: &[LoggedClaim]) -> Result<BatchGuard, JobError> {
        let (keys, lane) = (&self.app.stores.keys, self.log.lane());
        let names = claims.iter().map(|claim| keys.order_lock_name(lane, claim.user_id));
        Ok(self.app.locks.of(lane).batch(names.collect::<Names>()).volatile().try_acquire().await?)
    }

    /// Writes claims, and notes those that are finished. Splits claims that Postgres refuses until the faulty ones are
    /// dead letters. After a failure, claims that weren't tried stay in `progress.left`.
    async fn write_splitting(
        &self,
        claims: &[LoggedClaim],
        locks_lost: &CancellationToken,
        progress: &mut Progress,
    ) -> Result<(), JobError> {
        let mut parts = self.parts(claims);
        while let Some(part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            match self.write_part(&part, locks_lost, progress).await {
                Ok(next) => parts.extend(next),
                Err(error) => {
                    parts.push(part);
                    progress.left.claims.extend(parts.into_iter().flatten());
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Writes claims together. If that fails, returns the parts to try.
    async fn write_part(
        &self,
        part: &[LoggedClaim],
        locks_lost: &CancellationToken,
        progress: &mut Progress,
    ) -> Result<Vec<Vec<LoggedClaim>>, JobError> {
        let lane = self.log.lane();
        let origin = Origin::Lane(self.state().last);
        match self.app.orders.write((lane, progress.epoch), origin, part, locks_lost).await {
            Ok(written) => self.note_written(part, written, progress),
            Err(NotWritten::Poison(detail)) => {
                if part.len() > 1 {
                    return Ok(taken_apart(part));
                }
                let letter = |claim| DeadLetter::of_claim(lane, claim, Reason::Invalid, &detail);
                self.put_aside(part.iter().map(letter).collect(), progress).await?;
            }
            Err(NotWritten::LocksLost) => return Err(JobError::LocksLost),
            Err(NotWritten::Stale) => return Err(self.stale().await),
            Err(NotWritten::LastMissing(order)) => {
                // The next check closes all lanes until an operator decides.
                self.app.lanes.suspect_all();
                return Err(JobError::OrderMissing(order));
            }
            Err(NotWritten::Postgres(error)) if postgres::is_lock_timeout(&error) => {
                return self.find_locked(part, error, progress).await;
            }
            Err(NotWritten::Postgres(error)) => return Err(error.into()),
        }
        Ok(Vec::new())
    }

    /// A statement timed out waiting for a lock. Tries the sales one by one; claims on a sale whose row another session
    /// holds locked have to wait.
    async fn find_locked(
        &self,
        part: &[LoggedClaim],
        error: sqlx::Error,
        progress: &mut Progress,
    ) -> Result<Vec<Vec<LoggedClaim>>, JobError> {
        let by_coupon = by_coupon(part);
        if by_coupon.len() > 1 {
            return Ok(by_coupon.into_values().collect());
        }
        let (lane, coupon) = (self.log.lane(), part[0].coupon_id);
        let Some(session) = stock::lock_holder(&self.app.stores.pool, coupon).await? else {
            return Err(error.into());
        };
        if self.state().note_locked(coupon) {
            tracing::error!(%lane, %coupon, session, "ALARM: another session keeps the row of a sale locked in Postgres; its claims wait in the order log, and all others go on (docs/operate.md)");
        }
        progress.locked.insert(coupon);
        Ok(Vec::new())
    }

    /// Parts to write, the last one first: all claims together, and each recently locked sale by itself.
    fn parts(&self, claims: &[LoggedClaim]) -> Vec<Vec<LoggedClaim>> {
        let mut others = claims.to_vec();
        let locked = extract(&mut others, &self.state().locked);
        by_coupon(&locked).into_values().chain([others]).collect()
    }

    fn note_written(&self, part: &[LoggedClaim], written: Written, progress: &mut Progress) {
        let Written { inserted, repeated, dead_letters } = written;
        if inserted == part.len() {
            progress.last = part.last().copied().or(progress.last);
        }
        let report = &mut progress.report;
        report.inserted += inserted;
        report.repeated += repeated;
        let lane = self.log.lane();
        for (reason, claims) in dead_letters.into_iter().filter(|(_, claims)| *claims > 0) {
            report.dead_letters += claims;
            tracing::error!(%lane, claims, first = %part[0].place.entry, %reason, "claims in the order log can't become orders; they are dead letters now");
        }
        self.state().note_written(part);
        progress.finished.extend(part.iter().map(|claim| claim.place.entry));
    }

    /// Dead letters of positions that can't be read.
    fn unreadable(&self, unreadable: &[Unreadable]) -> Vec<DeadLetter> {
        let lane = self.log.lane();
        for lost in unreadable.iter().filter(|position| position.why == Why::Lost) {
            self.app.metrics.data_lost.increment(1);
            tracing::error!(%lane, entry = %lost.place.entry, "ALARM: an entry was deleted from the order log before it was written; run `flash-sale reconcile`");
        }
        unreadable.iter().map(|position| DeadLetter::unreadable(lane, position)).collect()
    }

    /// Turns positions into dead letters, a part at a time, with one log line for each part.
    async fn put_aside(
        &self,
        letters: Vec<DeadLetter>,
        progress: &mut Progress,
    ) -> Result<(), JobError> {
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
        // Only now: if a part fails, all are tried again, and existing letters count as repeats.
        progress.finished.extend(letters.iter().map(DeadLetter::entry));
        Ok(())
    }

    /// Wakes the requests of this process that wait for one of these orders.
    fn tell_waiters(&self, written: &[LoggedClaim]) {
        self.app.order_waiters.written(written.iter().map(|claim| claim.order_id));
    }

    /// Records the time from claim to row. Claims of the same millisecond are recorded together.
    fn time_rows(&self, written: &[LoggedClaim]) {
        let now = self.app.clock.now();
        let called_at = |claim: &LoggedClaim| claim.place.entry.time();
        for together in written.chunk_by(|a, b| called_at(a) == called_at(b)) {
            let waited = (now - called_at(&together[0])).to_std().unwrap_or_default();
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
    use crate::store::ids::{OrderId, UserId};

    fn claim(coupon: i64, order: i64) -> LoggedClaim {
        let (user, order) =
            (UserId::new(order).expect("an id"), OrderId::new(order).expect("an id"));
        LoggedClaim::without_entry(CouponId::compose(coupon, 1), user, order)
    }

    /// The last part is tried first.
    #[test]
    fn a_refused_part_is_taken_apart_by_coupon_and_then_in_halves() {
        let one = [(1, 11), (1, 12), (1, 13)];
        let two = [(1, 11), (2, 21), (1, 12)];
        for (claims, parts) in [
            (&one[..], [vec![12, 13], vec![11]]),
            (&two, [vec![11, 12], vec![21]]),
            (&one[..2], [vec![12], vec![11]]),
        ] {
            let claims: Vec<_> = claims.iter().map(|(c, o)| claim(*c, *o)).collect();
            let ids = |part: Vec<LoggedClaim>| -> Vec<i64> {
                part.iter().map(|claim| claim.order_id.get()).collect()
            };
            let found: Vec<_> = taken_apart(&claims).into_iter().map(ids).collect();
            assert_eq!(found, parts, "{claims:?}");
        }
    }
}
