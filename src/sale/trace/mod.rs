//! One claim, followed: its steps from the request to the acknowledgement of its entry.
//!
//! # Model
//!
//! A claim is measured if its client asks for that. The API notes the claim once it has its answer, and the worker
//! notes each batch that it has written. Both notes stay in the memory of their process, in rings of a fixed size. A
//! question joins the two by the order id, and asks Postgres for the row.
//!
//! With `--otlp-url`, a part of all claims is measured, whether clients ask or not, and the notes leave the process: a
//! collector joins those of all processes.
//!
//! # Authority
//!
//! Postgres tells whether there is a row, and when it was made. The durations of steps come from the monotonic clock
//! of this process. The one step that begins in Redis is marked as approximate.
//!
//! # What is not promised
//!
//! A note is lost with its process, and when newer notes need its place. Another process knows nothing of it. So a step
//! that this process has not measured is null; no step is derived from another one.

// Spans for a collector.
#[cfg(feature = "otlp")]
pub mod otlp;

// Notes that leave the process.
pub mod outbox;

// Rings of notes.
mod rings;

// The steps as they are told.
pub mod steps;

// Notes about claims and batches.
pub mod notes;

// Names of traces and spans.
pub mod names;

// Measurements of a claim under way.
pub mod probe;

use std::sync::{Arc, Mutex, MutexGuard};

use chrono::{DateTime, Utc};
use sqlx::PgPool;

use crate::sale::ids::{CouponId, OrderId, UserId};
use notes::{TracedBatch, TracedClaim};
use outbox::{Answered, Outbox};
use rings::{Batches, Claims};
use steps::{Acknowledged, Known, Trace};

/// Notes of this process, and the row in Postgres.
pub struct Traces {
    claims: Mutex<Claims>,
    batches: Mutex<Batches>,
    /// Notes that leave the process, if a collector is named.
    outbox: Option<Outbox>,
    pool: PgPool,
}

/// Times of a row: of the claim by Redis's clock, and of the row by that of Postgres.
struct Row {
    claimed_at: DateTime<Utc>,
    written_at: DateTime<Utc>,
}

impl Traces {
    /// No notes yet; rows are read from this database.
    pub fn new(pool: PgPool, outbox: Option<Outbox>) -> Self {
        Self { claims: Mutex::default(), batches: Mutex::default(), outbox, pool }
    }

    /// True if a collector is named, for which claims are measured.
    pub fn leave(&self) -> bool {
        self.outbox.is_some()
    }

    /// Notes a claim for the collector.
    pub fn note_answered(&self, answered: Answered) {
        if let Some(outbox) = &self.outbox {
            outbox.answered(answered);
        }
    }

    /// Notes a claim.
    pub fn note_claim(&self, claim: TracedClaim) {
        lock(&self.claims).push(claim);
    }

    /// Order of the newest claim on this coupon that was measured.
    pub fn newest_of(&self, coupon: CouponId) -> Option<OrderId> {
        lock(&self.claims).newest_of(coupon)
    }

    /// Notes a batch.
    pub fn note_batch(&self, batch: TracedBatch) {
        let batch = Arc::new(batch);
        if let Some(outbox) = &self.outbox {
            outbox.written(&batch);
        }
        lock(&self.batches).push(batch);
    }

    /// The steps of a claim, as far as they are known. `None` without a note of the claim, and for another `asker` than
    /// its user; without an asker, each claim may be followed.
    pub async fn follow(
        &self,
        order: OrderId,
        asker: Option<UserId>,
    ) -> sqlx::Result<Option<Trace>> {
        let noted = lock(&self.claims).find(order);
        let may_follow = |claim: &TracedClaim| asker.is_none_or(|user| user == claim.user);
        let Some(claim) = noted.filter(may_follow) else { return Ok(None) };
        let row = self.row(order).await?;
        let written = row.as_ref().map(|row| (row.claimed_at, row.written_at));
        // Without a row, no step after the log has an end.
        let batch = row.and_then(|_| self.batch_of(order));
        Ok(Some(Trace::of(&claim, batch.as_ref(), written)))
    }

    fn batch_of(&self, order: OrderId) -> Option<Known> {
        let batches = lock(&self.batches);
        let (batch, entry) = batches.of_order(order)?;
        let acknowledged = batches
            .that_acknowledged(entry)
            .map(|last| Acknowledged { at: last.acknowledged.0, after: last.committed_at });
        Some(Known {
            entry,
            worker: batch.worker.clone(),
            claims: batch.claims.len(),
            read_at: batch.read_at,
            taken_at: batch.taken_at,
            locked_at: batch.locked_at,
            committed_at: batch.committed_at,
            acknowledged,
        })
    }

    async fn row(&self, order: OrderId) -> sqlx::Result<Option<Row>> {
        sqlx::query_as!(
            Row,
            "SELECT claimed_at, created_at AS written_at FROM orders WHERE id = $1",
            order.get(),
        )
        .fetch_optional(&self.pool)
        .await
    }
}

fn lock<T>(ring: &Mutex<T>) -> MutexGuard<'_, T> {
    ring.lock().expect("no holder of this lock panics")
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;
    use tokio::sync::mpsc::Receiver;
    use tokio::time::Instant;

    use super::names::TraceName;
    use super::outbox::Note;
    use super::probe::Call;
    use super::*;
    use crate::base::limits;
    use crate::base::telemetry::Metrics;
    use crate::sale::log::EntryId;

    fn pool() -> PgPool {
        let pool = sqlx::postgres::PgPoolOptions::new().connect_lazy("postgres://localhost/none");
        pool.expect("a valid URL")
    }

    /// Traces of which one in so many leaves the process.
    fn leaving(one_in: u32) -> (Traces, Receiver<Note>, Arc<Metrics>) {
        let metrics = Metrics::new(std::iter::empty(), std::iter::empty()).expect("metrics");
        let metrics = Arc::new(metrics);
        let (outbox, notes) = Outbox::new(one_in, metrics.clone());
        (Traces::new(pool(), Some(outbox)), notes, metrics)
    }

    fn order(number: i64) -> OrderId {
        OrderId::new(number).expect("an id")
    }

    fn entry(number: i64) -> EntryId {
        EntryId { ms: number.unsigned_abs(), sequence: 0 }
    }

    fn answered(number: i64) -> Answered {
        let now = Instant::now();
        let call =
            Call { queued_at: now, called_at: now, answered_at: now, claims: 1, accepted: None };
        let (coupon, user) = (CouponId::compose(1, 1), UserId::new(9).expect("an id"));
        let claim = TracedClaim { order: order(number), coupon, user, call, told_at: now };
        Answered { claim, method: "POST", route: "/", arrived_at: now, status: 202 }
    }

    /// A batch of these orders, each of an entry of its number.
    fn batch(orders: impl Iterator<Item = i64> + Clone) -> TracedBatch {
        let now = Instant::now();
        TracedBatch {
            worker: "w".to_owned(),
            read_at: now,
            taken_at: now,
            locked_at: now,
            committed_at: now,
            acknowledged: (now, orders.clone().map(entry).collect()),
            claims: orders.map(|number| (order(number), entry(number))).collect(),
        }
    }

    /// The notes that have left, in their order: of an answer its order, of a row its order and its entry.
    fn left(notes: &mut Receiver<Note>) -> Vec<(i64, Option<EntryId>)> {
        let mut left = Vec::new();
        while let Ok(note) = notes.try_recv() {
            left.push(match note {
                Note::Answered(answered) => (answered.claim.order.get(), None),
                Note::Written { order, entry, .. } => (order.get(), Some(entry)),
            });
        }
        left
    }

    #[tokio::test]
    async fn notes_of_answers_and_batches_leave_by_the_outbox_if_there_is_one() {
        bound_this_test();
        let (traces, mut notes, _) = leaving(1);
        assert!(traces.leave());
        traces.note_answered(answered(7));
        traces.note_batch(batch(8..=9));
        let expected = [(7, None), (8, Some(entry(8))), (9, Some(entry(9)))];
        assert_eq!(left(&mut notes), expected);
        let alone = Traces::new(pool(), None);
        assert!(!alone.leave());
        alone.note_answered(answered(7));
        alone.note_batch(batch(8..=9));
        for traces in [&traces, &alone] {
            let known = traces.batch_of(order(9)).expect("the ring has it");
            assert_eq!((known.entry, known.claims, known.worker), (entry(9), 2, "w".to_owned()));
            assert!(known.acknowledged.is_some());
            assert!(traces.batch_of(order(7)).is_none());
        }
    }

    #[tokio::test]
    async fn the_outbox_picks_the_same_claims_when_they_are_answered_and_when_they_are_written() {
        bound_this_test();
        let (traces, mut notes, _) = leaving(4);
        for number in 1..=100 {
            traces.note_answered(answered(number));
        }
        let picked: Vec<i64> =
            (1..=100).filter(|number| TraceName::of(order(*number)).is_picked(4)).collect();
        assert!((1..100).contains(&picked.len()), "{picked:?}");
        assert_eq!(left(&mut notes), picked.iter().map(|id| (*id, None)).collect::<Vec<_>>());
        traces.note_batch(batch(1..=100));
        let written = picked.iter().map(|id| (*id, Some(entry(*id)))).collect::<Vec<_>>();
        assert_eq!(left(&mut notes), written);
    }

    #[tokio::test]
    async fn a_full_outbox_loses_notes_and_counts_them() {
        bound_this_test();
        let (traces, mut notes, metrics) = leaving(1);
        let places = i64::try_from(limits::SPAN_NOTES_MAX).expect("a small number");
        let lost = |count| format!("\nflash_sale_trace_notes_lost_total {count}\n");
        for number in 1..=places {
            traces.note_answered(answered(number));
        }
        assert!(metrics.page().contains(&lost(0)));
        for number in 1..=2 {
            traces.note_answered(answered(places + number));
        }
        assert!(metrics.page().contains(&lost(2)));
        let left: Vec<i64> = left(&mut notes).into_iter().map(|(order, _)| order).collect();
        assert_eq!(left, (1..=places).collect::<Vec<_>>());
    }
}
