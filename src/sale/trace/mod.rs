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
