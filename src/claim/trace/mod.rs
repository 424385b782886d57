//! Follows one claim, from the request to the acknowledgement of its entry.
//!
//! # Model
//!
//! A claim is measured if its client asks for that. The API notes the claim once the script has answered, and the
//! worker notes each batch that it has written. Both notes stay in the memory of their process, where new notes push
//! out the oldest. A query joins the two by the order id, and asks Postgres for the row.
//!
//! # Authority
//!
//! Postgres tells whether there is a row, and when it was made. The durations of steps come from the monotonic clock of
//! this process. The one step that begins in Redis is marked as approximate.
//!
//! # What is not promised
//!
//! A note is lost with its process, or pushed out by newer ones, and other processes don't have it. So a step that this
//! process has not measured is null; no step is derived from another one.

// The steps as they are told.
pub mod steps;

// Measurements of a claim under way.
pub mod probe;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use sqlx::PgPool;
use tokio::time::Instant;

use crate::base::limits;
use crate::log::EntryId;
use crate::store::ids::{OrderId, UserId};
use steps::{Known, Row, Trace};
pub use steps::{TracedBatch, TracedClaim};

/// A claim that has become a row.
struct Written {
    order: OrderId,
    entry: EntryId,
    batch: Arc<TracedBatch>,
}

pub struct Traces {
    claims: Mutex<VecDeque<TracedClaim>>,
    written: Mutex<VecDeque<Written>>,
    /// Acknowledged entries, each with the time of the last commit before it, and of its acknowledgement.
    acknowledged: Mutex<VecDeque<(EntryId, Instant, Instant)>>,
    pool: PgPool,
}

impl Traces {
    pub fn new(pool: PgPool) -> Self {
        let (claims, written, acknowledged) = Default::default();
        Self { claims, written, acknowledged, pool }
    }

    pub fn note_claim(&self, claim: TracedClaim) {
        push(&mut lock(&self.claims), claim, limits::TRACED_CLAIMS_MAX);
    }

    /// Notes a batch: the claims that became rows, each with its entry, and the entries that were acknowledged
    /// afterwards.
    pub fn note_batch(
        &self,
        batch: TracedBatch,
        claims: Vec<(OrderId, EntryId)>,
        acknowledged: impl Iterator<Item = EntryId>,
    ) {
        let (now, committed_at, batch) = (Instant::now(), batch.committed_at, Arc::new(batch));
        let mut written = lock(&self.written);
        for (order, entry) in claims {
            let claim = Written { order, entry, batch: batch.clone() };
            push(&mut written, claim, limits::TRACED_ROWS_MAX);
        }
        let mut done = lock(&self.acknowledged);
        for entry in acknowledged {
            push(&mut done, (entry, committed_at, now), limits::TRACED_ROWS_MAX);
        }
    }

    /// The steps of a claim, as far as they are known. `None` if the claim isn't noted, or `asker` isn't its user;
    /// without an asker, any claim may be followed.
    pub async fn follow(
        &self,
        order: OrderId,
        asker: Option<UserId>,
    ) -> sqlx::Result<Option<Trace>> {
        let noted = lock(&self.claims).iter().rev().find(|claim| claim.order == order).copied();
        let may_follow = |claim: &TracedClaim| asker.is_none_or(|user| user == claim.user);
        let Some(claim) = noted.filter(may_follow) else { return Ok(None) };
        let row = sqlx::query_as!(
            Row,
            "SELECT claimed_at, created_at AS written_at FROM orders WHERE id = $1",
            order.get(),
        );
        let row = row.fetch_optional(&self.pool).await?;
        // Without a row, no step after the log has an end.
        let known = row.as_ref().and_then(|_| self.known(order));
        Ok(Some(Trace::of(&claim, known.as_ref(), row.as_ref())))
    }

    fn known(&self, order: OrderId) -> Option<Known> {
        let (entry, batch) = {
            let written = lock(&self.written);
            let last = written.iter().rev().find(|written| written.order == order)?;
            (last.entry, last.batch.clone())
        };
        let acknowledged = lock(&self.acknowledged);
        let last = acknowledged.iter().rev().find(|(acknowledged, ..)| *acknowledged == entry);
        Some(Known { entry, batch, acknowledged: last.map(|(_, after, at)| (*after, *at)) })
    }
}

fn lock<T>(notes: &Mutex<T>) -> MutexGuard<'_, T> {
    notes.lock().expect("no holder of this lock panics")
}

fn push<T>(notes: &mut VecDeque<T>, note: T, most: usize) {
    if notes.len() == most {
        notes.pop_front();
    }
    notes.push_back(note);
}
