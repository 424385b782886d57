//! Notes of this process that leave it: for traces that a collector joins.
//!
//! The claim path and the worker only hand notes over, and never wait: a note that finds no room is lost, and counted.

use std::sync::Arc;

use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;

use super::names::TraceName;
use super::notes::{TracedBatch, TracedClaim};
use crate::base::limits;
use crate::base::telemetry::Metrics;
use crate::sale::ids::OrderId;
use crate::sale::log::EntryId;

/// Picks claims, and hands their notes to the task that sends them.
pub struct Outbox {
    one_in: u32,
    notes: Sender<Note>,
    metrics: Arc<Metrics>,
}

/// The part that a process has had in a claim.
#[derive(Clone, Debug)]
pub enum Note {
    /// The claim has been accepted, and its client told.
    Answered(Answered),
    /// The claim has become a row.
    Written {
        /// Its order.
        order: OrderId,
        /// Its entry.
        entry: EntryId,
        /// Its batch.
        batch: Arc<TracedBatch>,
    },
}

/// A claim that has been accepted, with its request.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// The claim.
    pub claim: TracedClaim,
    /// Method of the request.
    pub method: &'static str,
    /// Its route.
    pub route: &'static str,
    /// Time at which its head was there.
    pub arrived_at: Instant,
    /// Status of the reply.
    pub status: u16,
}

impl Outbox {
    /// For one claim in so many; and the notes, for the task that sends them.
    pub fn new(one_in: u32, metrics: Arc<Metrics>) -> (Self, Receiver<Note>) {
        let (notes, queue) = channel(limits::SPAN_NOTES_MAX);
        (Self { one_in, notes, metrics }, queue)
    }

    /// Notes a claim, if it is picked.
    pub(super) fn answered(&self, answered: Answered) {
        if self.picks(answered.claim.order) {
            self.hand_over(Note::Answered(answered));
        }
    }

    /// Notes the claims of a batch that are picked.
    pub(super) fn written(&self, batch: &Arc<TracedBatch>) {
        for (order, entry) in batch.claims.iter().copied().filter(|(order, _)| self.picks(*order)) {
            self.hand_over(Note::Written { order, entry, batch: batch.clone() });
        }
    }

    fn picks(&self, order: OrderId) -> bool {
        TraceName::of(order).is_picked(self.one_in)
    }

    fn hand_over(&self, note: Note) {
        if self.notes.try_send(note).is_err() {
            self.metrics.trace_notes_lost.increment(1);
        }
    }
}
