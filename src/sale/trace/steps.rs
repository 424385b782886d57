//! The steps of a claim, as they are told: each with its time, and the file that does it.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::notes::TracedClaim;
use crate::sale::ids::{CouponId, OrderId};
use crate::sale::log::EntryId;

/// A step of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepName {
    /// The claim waits for its call of the script.
    Queue,
    /// The script decides, and appends the claim to the log.
    Script,
    /// The service makes the reply to the client.
    Answer,
    /// The entry waits in the log for a worker.
    Log,
    /// The worker has the claim, and waits for the batch to begin.
    Batch,
    /// The worker tries the locks of the buyers in its batch.
    Locks,
    /// Postgres writes the rows of the batch.
    Row,
    /// The entry is acknowledged.
    Acknowledgement,
}

impl StepName {
    /// The file that does it; `tests/tidy/documents.rs` looks whether it is there.
    pub(super) fn file(self) -> &'static str {
        match self {
            Self::Queue => "src/sale/claim/queue.rs",
            Self::Script => "lua/claim.lua",
            Self::Answer => "src/http/claims.rs",
            Self::Log => "src/sale/log/mod.rs",
            Self::Batch => "src/worker/write.rs",
            Self::Locks => "crates/redisson-locks/src/reentrant/batch.rs",
            Self::Row => "src/sale/order/write.rs",
            Self::Acknowledgement => "lua/acknowledge.lua",
        }
    }
}

/// A step with its times.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TraceStep {
    /// The step.
    name: StepName,
    /// The file of the source that does it.
    file: &'static str,
    /// Begin, in microseconds after the claim arrived; null if this process doesn't know it.
    #[schema(minimum = 0)]
    starts_us: Option<u64>,
    /// Duration in microseconds; null if this process doesn't know it.
    #[schema(minimum = 0)]
    took_us: Option<u64>,
    /// Whether the step lies between two clocks.
    approximate: bool,
}

/// The time from the claim to its row.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct RowAfter {
    /// In microseconds.
    #[schema(minimum = 0)]
    us: u64,
    /// Whether the time lies between two clocks: those of Redis and of Postgres.
    approximate: bool,
}

/// One claim, followed from its arrival to the acknowledgement of its entry.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Trace {
    /// The order that the claim has become, or is about to become.
    order_id: OrderId,
    /// The claimed coupon.
    coupon_id: CouponId,
    /// Time of the claim by Redis's clock; null until the row is there.
    claimed_at: Option<DateTime<Utc>>,
    /// Time of the row by the clock of Postgres; null until it is there.
    written_at: Option<DateTime<Utc>>,
    /// Time from the claim to its row; null until it is there.
    row_after: Option<RowAfter>,
    /// Claims that shared the call of the script.
    #[schema(minimum = 1)]
    call_claims: usize,
    /// Entry of the claim in the order log; null if no worker of this process has written it.
    entry: Option<String>,
    /// Name of the worker among the consumers of the log; null if no worker of this process has written the claim.
    worker: Option<String>,
    /// Claims of the batch; null if no worker of this process has written the claim.
    #[schema(minimum = 1)]
    batch_claims: Option<usize>,
    /// All steps, in their order.
    steps: Vec<TraceStep>,
}

/// Facts of this process about the way into Postgres.
pub(super) struct Known {
    pub entry: EntryId,
    pub worker: String,
    pub claims: usize,
    pub read_at: Instant,
    pub taken_at: Instant,
    pub locked_at: Instant,
    pub committed_at: Instant,
    pub acknowledged: Option<Acknowledged>,
}

/// An acknowledgement, and the commit before it: that of the last batch with a claim of the entry.
pub(super) struct Acknowledged {
    pub at: Instant,
    pub after: Instant,
}

impl Trace {
    /// Joins the notes; `written` has the times of the claim and of its row.
    pub(super) fn of(
        claim: &TracedClaim,
        batch: Option<&Known>,
        written: Option<(DateTime<Utc>, DateTime<Utc>)>,
    ) -> Self {
        let row_after = written.map(|(claimed_at, written_at)| match batch {
            Some(batch) => {
                RowAfter { us: us(claim.call.queued_at, batch.committed_at), approximate: false }
            }
            None => RowAfter {
                us: in_us((written_at - claimed_at).to_std().unwrap_or_default()),
                approximate: true,
            },
        });
        Self {
            order_id: claim.order,
            coupon_id: claim.coupon,
            claimed_at: written.map(|times| times.0),
            written_at: written.map(|times| times.1),
            row_after,
            call_claims: claim.call.claims,
            entry: batch.map(|batch| batch.entry.to_string()),
            worker: batch.map(|batch| batch.worker.clone()),
            batch_claims: batch.map(|batch| batch.claims),
            steps: steps(claim, batch),
        }
    }
}

fn steps(claim: &TracedClaim, batch: Option<&Known>) -> Vec<TraceStep> {
    let call = &claim.call;
    let step = |name: StepName, times: Option<(Instant, Instant)>| TraceStep {
        name,
        file: name.file(),
        starts_us: times.map(|(from, _)| us(call.queued_at, from)),
        took_us: times.map(|(from, to)| us(from, to)),
        // Its entry is there from a moment of Redis's clock on, of which this process knows the reply only.
        approximate: name == StepName::Log,
    };
    // A worker may have read the entry before the reply was here.
    let in_log = |batch: &Known| (call.answered_at.min(batch.read_at), batch.read_at);
    let acknowledged = |batch: &Known| batch.acknowledged.as_ref().map(|it| (it.after, it.at));
    vec![
        step(StepName::Queue, Some((call.queued_at, call.called_at))),
        step(StepName::Script, Some((call.called_at, call.answered_at))),
        step(StepName::Answer, Some((call.answered_at, claim.told_at))),
        step(StepName::Log, batch.map(in_log)),
        step(StepName::Batch, batch.map(|batch| (batch.read_at, batch.taken_at))),
        step(StepName::Locks, batch.map(|batch| (batch.taken_at, batch.locked_at))),
        step(StepName::Row, batch.map(|batch| (batch.locked_at, batch.committed_at))),
        step(StepName::Acknowledgement, batch.and_then(acknowledged)),
    ]
}

fn us(from: Instant, to: Instant) -> u64 {
    in_us(to.saturating_duration_since(from))
}

fn in_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
