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
    /// Process id of the worker; null if no worker of this process has written the claim.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sale::ids::UserId;
    use crate::sale::trace::probe::Call;

    /// A claim whose steps took 1, 2 and 4 ms, and whose row was there 70 ms after its arrival.
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
        let batch = Known {
            entry: EntryId { ms: 5, sequence: 6 },
            worker: "w".into(),
            claims: 8,
            read_at: at(10),
            taken_at: at(20),
            locked_at: at(40),
            committed_at: at(70),
            acknowledged: Some(Acknowledged { at: at(95), after: at(80) }),
        };
        (claim, batch)
    }

    /// Begin and duration of each step, in milliseconds.
    fn times(trace: &Trace) -> Vec<Option<(u64, u64)>> {
        let of = |step: &TraceStep| Some((step.starts_us? / 1_000, step.took_us? / 1_000));
        trace.steps.iter().map(of).collect()
    }

    #[test]
    fn steps_follow_each_other_from_the_arrival_on() {
        let (claim, batch) = noted();
        let trace = Trace::of(&claim, Some(&batch), None);
        let expected = [(0, 1), (1, 2), (3, 4), (3, 7), (10, 10), (20, 20), (40, 30), (80, 15)];
        assert_eq!(times(&trace), expected.map(Some));
        let approximate: Vec<_> =
            trace.steps.iter().filter(|step| step.approximate).map(|step| step.name).collect();
        assert_eq!(approximate, [StepName::Log]);
        for step in &trace.steps {
            assert_eq!(step.file, step.name.file());
        }
    }

    #[test]
    fn steps_that_are_not_known_have_no_times() {
        let (claim, mut batch) = noted();
        batch.acknowledged = None;
        let trace = Trace::of(&claim, Some(&batch), None);
        assert_eq!(times(&trace)[6..], [Some((40, 30)), None]);
        let trace = Trace::of(&claim, None, None);
        assert_eq!(
            times(&trace),
            [Some((0, 1)), Some((1, 2)), Some((3, 4)), None, None, None, None, None]
        );
        assert!(trace.entry.is_none() && trace.worker.is_none() && trace.batch_claims.is_none());
    }

    /// A worker may have read the entry before the reply was here.
    #[test]
    fn an_entry_that_was_read_before_the_reply_has_waited_for_nothing() {
        let (claim, mut batch) = noted();
        batch.read_at = claim.call.called_at + Duration::from_millis(1);
        assert_eq!(times(&Trace::of(&claim, Some(&batch), None))[3], Some((2, 0)));
    }

    #[test]
    fn a_row_is_timed_by_one_clock_where_this_process_wrote_it_and_by_two_otherwise() {
        let (claim, batch) = noted();
        let claimed_at = DateTime::from_timestamp_millis(1_000).expect("a time");
        let written_at = DateTime::from_timestamp_millis(1_090).expect("a time");
        let after = |batch, written| {
            let trace = Trace::of(&claim, batch, written);
            assert_eq!(trace.claimed_at.zip(trace.written_at), written);
            assert_eq!((trace.order_id, trace.call_claims), (claim.order, 5));
            trace.row_after.map(|after| (after.us, after.approximate))
        };
        assert_eq!(after(Some(&batch), Some((claimed_at, written_at))), Some((70_000, false)));
        assert_eq!(after(None, Some((claimed_at, written_at))), Some((90_000, true)));
        assert_eq!(after(None, Some((written_at, claimed_at))), Some((0, true)), "clocks differ");
        assert_eq!(after(Some(&batch), None), None);
        let trace = Trace::of(&claim, Some(&batch), None);
        let of_batch = (trace.entry.as_deref(), trace.worker.as_deref(), trace.batch_claims);
        assert_eq!(of_batch, (Some("5-6"), Some("w"), Some(8)));
    }

    #[test]
    fn each_step_is_told_with_the_file_that_does_it() {
        let (claim, batch) = noted();
        let trace = Trace::of(&claim, Some(&batch), None);
        let told: Vec<_> = trace.steps.iter().map(|step| (step.name, step.file)).collect();
        let expected = [
            (StepName::Queue, "src/sale/claim/queue.rs"),
            (StepName::Script, "lua/claim.lua"),
            (StepName::Answer, "src/http/claims.rs"),
            (StepName::Log, "src/sale/log/mod.rs"),
            (StepName::Batch, "src/worker/write.rs"),
            (StepName::Locks, "crates/redisson-locks/src/reentrant/batch.rs"),
            (StepName::Row, "src/sale/order/write.rs"),
            (StepName::Acknowledgement, "lua/acknowledge.lua"),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn times_that_go_back_are_zero_and_long_ones_are_told_in_us() {
        let now = Instant::now();
        let later = now + Duration::from_millis(1_500);
        assert_eq!([us(now, later), us(later, now), us(now, now)], [1_500_000, 0, 0]);
    }
}
