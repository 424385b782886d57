//! The steps of a claim, as clients see them: each with its times, and the source file that does it.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::probe::Call;
use crate::log::EntryId;
use crate::store::ids::{CouponId, OrderId, UserId};

/// A claim that was accepted and measured.
#[derive(Clone, Copy, Debug)]
pub struct TracedClaim {
    pub order: OrderId,
    pub coupon: CouponId,
    /// Its user, who may follow it.
    pub user: UserId,
    pub call: Call,
    /// When the reply to the client was made.
    pub told_at: Instant,
}

/// Times of a batch that a worker of this process has written; if it was tried more than once, those of the last try.
#[derive(Clone, Debug)]
pub struct TracedBatch {
    /// Process id of the worker.
    pub worker: String,
    /// Claims that the worker has made rows of.
    pub claims: usize,
    /// When entries were last read before the batch.
    pub read_at: Instant,
    pub taken_at: Instant,
    /// When the locks of its buyers were held.
    pub locked_at: Instant,
    pub committed_at: Instant,
}

/// Facts of this process about a claim's way into Postgres.
pub(super) struct Known {
    pub(super) entry: EntryId,
    pub(super) batch: Arc<TracedBatch>,
    /// The commit of the last batch with a claim of the entry, and the acknowledgement behind it.
    pub(super) acknowledged: Option<(Instant, Instant)>,
}

/// Times of a row: `claimed_at` by Redis's clock, `written_at` by that of Postgres.
pub(super) struct Row {
    pub(super) claimed_at: DateTime<Utc>,
    pub(super) written_at: DateTime<Utc>,
}

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
    /// The file that does it; `tests/tidy/documents.rs` checks that it exists.
    fn file(self) -> &'static str {
        match self {
            Self::Queue => "src/claim/queue.rs",
            Self::Script => "lua/claim.lua",
            Self::Answer => "src/http/claims.rs",
            Self::Log => "src/log/mod.rs",
            Self::Batch => "src/worker/write.rs",
            Self::Locks => "crates/redisson-locks/src/reentrant/batch.rs",
            Self::Row => "src/order/write.rs",
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
    /// Start of the step, in microseconds after the claim arrived; null if this process doesn't know it.
    #[schema(minimum = 0)]
    starts_us: Option<u64>,
    /// Duration in microseconds; null if this process doesn't know it.
    #[schema(minimum = 0)]
    took_us: Option<u64>,
    /// Whether the times are approximate, because the step begins in Redis, by another clock.
    approximate: bool,
}

/// The time from the claim to its row.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct RowAfter {
    /// In microseconds.
    #[schema(minimum = 0)]
    us: u64,
    /// Whether the time was measured by two clocks: those of Redis and of Postgres.
    approximate: bool,
}

/// One claim, followed from its arrival to the acknowledgement of its entry.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Trace {
    /// The order that the claim has become, or will become.
    order_id: OrderId,
    /// The claimed coupon.
    coupon_id: CouponId,
    /// Time of the claim by Redis's clock; null until the row exists.
    claimed_at: Option<DateTime<Utc>>,
    /// Time of the row by Postgres's clock; null until the row exists.
    written_at: Option<DateTime<Utc>>,
    /// Time from the claim to its row; null until the row exists.
    row_after: Option<RowAfter>,
    /// Claims that shared the call of the script.
    #[schema(minimum = 1)]
    call_claims: usize,
    /// Entry of the claim in the order log; null if no worker of this process has written it.
    entry: Option<String>,
    /// Process id of the worker; null if no worker of this process has written the claim.
    worker: Option<String>,
    /// Claims of the batch; null if no worker of this process has written the claim.
    #[schema(minimum = 1)]
    batch_claims: Option<usize>,
    /// All steps, in their order.
    steps: Vec<TraceStep>,
}

impl Trace {
    /// Joins the notes and the row.
    pub(super) fn of(claim: &TracedClaim, known: Option<&Known>, row: Option<&Row>) -> Self {
        let row_after = row.map(|row| match known {
            Some(known) => RowAfter {
                us: us(claim.call.queued_at, known.batch.committed_at),
                approximate: false,
            },
            None => RowAfter {
                us: in_us((row.written_at - row.claimed_at).to_std().unwrap_or_default()),
                approximate: true,
            },
        });
        Self {
            order_id: claim.order,
            coupon_id: claim.coupon,
            claimed_at: row.map(|row| row.claimed_at),
            written_at: row.map(|row| row.written_at),
            row_after,
            call_claims: claim.call.claims,
            entry: known.map(|known| known.entry.to_string()),
            worker: known.map(|known| known.batch.worker.clone()),
            batch_claims: known.map(|known| known.batch.claims),
            steps: steps(claim, known),
        }
    }
}

fn steps(claim: &TracedClaim, known: Option<&Known>) -> Vec<TraceStep> {
    let call = &claim.call;
    let step = |name: StepName, times: Option<(Instant, Instant)>| TraceStep {
        name,
        file: name.file(),
        starts_us: times.map(|(from, _)| us(call.queued_at, from)),
        took_us: times.map(|(from, to)| us(from, to)),
        // The entry is there from a moment of Redis's clock on; this process only knows when the reply arrived.
        approximate: name == StepName::Log,
    };
    let batch = known.map(|known| &known.batch);
    vec![
        step(StepName::Queue, Some((call.queued_at, call.called_at))),
        step(StepName::Script, Some((call.called_at, call.answered_at))),
        step(StepName::Answer, Some((call.answered_at, claim.told_at))),
        // A worker may have read the entry before the reply arrived.
        step(StepName::Log, batch.map(|it| (call.answered_at.min(it.read_at), it.read_at))),
        step(StepName::Batch, batch.map(|it| (it.read_at, it.taken_at))),
        step(StepName::Locks, batch.map(|it| (it.taken_at, it.locked_at))),
        step(StepName::Row, batch.map(|it| (it.locked_at, it.committed_at))),
        step(StepName::Acknowledgement, known.and_then(|known| known.acknowledged)),
    ]
}

fn us(from: Instant, to: Instant) -> u64 {
    in_us(to.saturating_duration_since(from))
}

fn in_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim whose first steps took 1, 2 and 4 ms, and whose row was there 70 ms after its arrival.
    fn noted() -> (TracedClaim, Known) {
        let queued_at = Instant::now();
        let at = |ms| queued_at + Duration::from_millis(ms);
        let call =
            Call { queued_at, called_at: at(1), answered_at: at(3), claims: 5, accepted: None };
        let claim = TracedClaim {
            order: OrderId::new(7).expect("an id"),
            coupon: CouponId::compose(1, 1),
            user: UserId::new(9).expect("an id"),
            call,
            told_at: at(7),
        };
        let batch = TracedBatch {
            worker: "w".into(),
            claims: 8,
            read_at: at(10),
            taken_at: at(20),
            locked_at: at(40),
            committed_at: at(70),
        };
        let entry = EntryId { ms: 5, sequence: 6 };
        (claim, Known { entry, batch: batch.into(), acknowledged: Some((at(80), at(95))) })
    }

    /// Start and duration of each step, in milliseconds.
    fn times(trace: &Trace) -> Vec<Option<(u64, u64)>> {
        let of = |step: &TraceStep| Some((step.starts_us? / 1_000, step.took_us? / 1_000));
        trace.steps.iter().map(of).collect()
    }

    #[test]
    fn steps_follow_each_other_from_the_arrival_on_as_far_as_they_are_known() {
        let (claim, mut known) = noted();
        let trace = Trace::of(&claim, Some(&known), None);
        let expected = [(0, 1), (1, 2), (3, 4), (3, 7), (10, 10), (20, 20), (40, 30), (80, 15)];
        assert_eq!(times(&trace), expected.map(Some));
        let of_batch = (trace.entry.as_deref(), trace.worker.as_deref(), trace.batch_claims);
        assert_eq!(of_batch, (Some("5-6"), Some("w"), Some(8)));
        known.acknowledged = None;
        let trace = Trace::of(&claim, Some(&known), None);
        assert_eq!(times(&trace)[6..], [Some((40, 30)), None]);
        let trace = Trace::of(&claim, None, None);
        let expected = [Some((0, 1)), Some((1, 2)), Some((3, 4)), None, None, None, None, None];
        assert_eq!(times(&trace), expected);
        assert!(trace.entry.is_none() && trace.worker.is_none() && trace.batch_claims.is_none());
    }

    #[test]
    fn a_row_is_timed_by_one_clock_where_this_process_wrote_it_and_by_two_otherwise() {
        let (claim, known) = noted();
        let time = |ms| DateTime::from_timestamp_millis(ms).expect("a time");
        let row = |claimed_at, written_at| Row { claimed_at, written_at };
        let after = |known, row: Option<&Row>| {
            let trace = Trace::of(&claim, known, row);
            trace.row_after.map(|after| (after.us, after.approximate))
        };
        let usual = row(time(1_000), time(1_090));
        assert_eq!(after(Some(&known), Some(&usual)), Some((70_000, false)));
        assert_eq!(after(None, Some(&usual)), Some((90_000, true)));
        let differ = row(time(1_090), time(1_000));
        assert_eq!(after(None, Some(&differ)), Some((0, true)), "the clocks differ");
        assert_eq!(after(Some(&known), None), None);
    }
}
