//! Claims that wait for a call of the claim script, by coupon.
//!
//! A coupon has a queue while a call is under way for it. The first claim in it has waited longest, so claims that have
//! waited too long are found without looking at the others: in an overload there are thousands.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::base::limits;
use crate::claim::outcome::ClaimOutcome;
use crate::claim::outcome::Reply;
use crate::claim::trace::probe::{Call, Probe};
use crate::store::Failure;
use crate::store::ids::{CouponId, UserId};

/// A claim without an answer yet.
pub struct Waiting {
    pub user: UserId,
    pub since: Instant,
    /// Takes the reply; `None` once the claim has been given up.
    tell: Option<oneshot::Sender<Result<Reply, Failure>>>,
    /// Measures the claim, if its client has asked for that.
    probe: Option<Arc<Probe>>,
}

impl Waiting {
    /// A claim that arrives now, and the receiver of its reply. Without a reply, the outcome is unknown.
    pub fn new(
        user: UserId,
        probe: Option<Arc<Probe>>,
    ) -> (Self, oneshot::Receiver<Result<Reply, Failure>>) {
        let (tell, told) = oneshot::channel();
        (Self { user, since: Instant::now(), tell: Some(tell), probe }, told)
    }

    pub fn is_probed(&self) -> bool {
        self.probe.is_some()
    }

    /// Notes the call that brought the reply, and the number of claims that shared it.
    pub fn note(&self, called_at: Instant, claims: usize, reply: &Reply) {
        let Some(probe) = &self.probe else { return };
        let accepted = match reply {
            Reply::Decided(ClaimOutcome::Accepted(order)) => Some(*order),
            _ => None,
        };
        let (queued_at, answered_at) = (self.since, Instant::now());
        probe.note(Call { queued_at, called_at, answered_at, claims, accepted });
    }

    /// Sends the reply; ignored if the client has disconnected.
    pub fn tell(self, reply: Result<Reply, Failure>) {
        let _ = self.tell.map(|tell| tell.send(reply));
    }

    /// Gives the claim up: its outcome is unknown.
    pub fn give_up(&mut self) {
        self.tell = None;
    }

    fn is_waited_for(&self) -> bool {
        self.tell.as_ref().is_some_and(|tell| !tell.is_closed())
    }
}

pub struct Queues {
    /// Held for a few instructions, never across an await.
    queues: Mutex<HashMap<CouponId, Queue>>,
    /// Time after which a claim leaves its queue.
    wait_max: Duration,
}

/// The claims on one coupon that wait for a call. Exists while a call is under way.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    calls: usize,
}

impl Queues {
    pub fn new(wait_max: Duration) -> Self {
        Self { queues: Mutex::default(), wait_max }
    }

    /// Queues a claim. True if the caller has to begin a call.
    pub fn push(&self, coupon: CouponId, claim: Waiting) -> bool {
        let mut queues = self.lock();
        let queue = queues.entry(coupon).or_default();
        queue.waiting.push_back(claim);
        let begin = queue.calls < limits::CLAIM_CALLS_MAX;
        queue.calls += usize::from(begin);
        begin
    }

    /// The claims of the next call, without those that have been given up. If there are none, the call ends in the same
    /// step, so that the next claim begins one.
    pub fn next_call(&self, coupon: CouponId) -> Option<Vec<Waiting>> {
        let mut queues = self.lock();
        let queue = queues.get_mut(&coupon)?;
        queue.refuse_late(self.wait_max);
        let count = call_size(queue.waiting.len());
        let mut claims = Vec::with_capacity(count.min(queue.waiting.len()));
        while claims.len() < count
            && let Some(claim) = queue.waiting.pop_front()
        {
            if claim.is_waited_for() {
                claims.push(claim);
            }
        }
        if claims.is_empty() {
            end_call(&mut queues, coupon);
            return None;
        }
        Some(claims)
    }

    /// Refuses the claims that have waited too long: they leave the queue, are told `overloaded`, and are certainly
    /// not carried out.
    pub fn refuse_late(&self, coupon: CouponId) {
        if let Some(queue) = self.lock().get_mut(&coupon) {
            queue.refuse_late(self.wait_max);
        }
    }

    /// Ends a call that no other one follows. May be called during a panic.
    pub fn end_call(&self, coupon: CouponId) {
        if let Ok(mut queues) = self.queues.lock() {
            end_call(&mut queues, coupon);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CouponId, Queue>> {
        self.queues.lock().expect("no holder of this lock panics")
    }
}

impl Queue {
    fn refuse_late(&mut self, wait_max: Duration) {
        while let Some(first) = self.waiting.front()
            && first.since.elapsed() >= wait_max
            && let Some(claim) = self.waiting.pop_front()
        {
            claim.tell(Ok(Reply::Decided(ClaimOutcome::Overloaded)));
        }
    }
}

/// Removes the queue with its last call. Each claim in it is told that there is no reply.
fn end_call(queues: &mut HashMap<CouponId, Queue>, coupon: CouponId) {
    if let Some(queue) = queues.get_mut(&coupon) {
        queue.calls -= 1;
        if queue.calls == 0 {
            queues.remove(&coupon);
        }
    }
}

/// Number of claims that share a call when so many wait. It grows in an overload, because each call for which Redis
/// syncs its file then has to answer more. It doesn't grow sooner, because the service would be idle for longer.
fn call_size(waiting: usize) -> usize {
    (waiting / 4).clamp(limits::CLAIM_CALL_CLAIMS, limits::CLAIM_CALL_CLAIMS_MAX)
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;

    use super::*;

    fn coupon() -> CouponId {
        CouponId::compose(1, 1)
    }

    fn push(queues: &Queues, user: i64) -> (bool, oneshot::Receiver<Result<Reply, Failure>>) {
        let (claim, told) = Waiting::new(UserId::new(user).unwrap(), None);
        (queues.push(coupon(), claim), told)
    }

    fn users(claims: Option<Vec<Waiting>>) -> Vec<i64> {
        claims.into_iter().flatten().map(|claim| claim.user.get()).collect()
    }

    #[test]
    fn a_call_takes_more_when_thousands_wait() {
        let sizes = [0, 1, 128, 512, 513, 2_000, 1_000_000].map(call_size);
        assert_eq!(sizes, [128, 128, 128, 128, 128, 500, 512]);
    }

    #[tokio::test]
    async fn claims_wait_while_calls_are_under_way_and_the_last_call_takes_the_queue_with_it() {
        bound_this_test();
        let queues = Queues::new(limits::CLAIM_WAIT);
        let pushed: Vec<_> = (1..=4).map(|user| push(&queues, user)).collect();
        assert_eq!(pushed.iter().map(|it| it.0).collect::<Vec<_>>(), [true, true, false, false]);
        assert_eq!(users(queues.next_call(coupon())), [1, 2, 3, 4]);
        assert!(queues.next_call(coupon()).is_none() && queues.next_call(coupon()).is_none());
        assert!(queues.lock().is_empty());
        assert!(push(&queues, 5).0, "no other claim begins a call for it");
    }

    #[tokio::test]
    async fn who_has_gone_away_is_not_carried_out() {
        bound_this_test();
        let queues = Queues::new(limits::CLAIM_WAIT);
        let ((_, gone), (_, _stays)) = (push(&queues, 1), push(&queues, 2));
        drop(gone);
        assert_eq!(users(queues.next_call(coupon())), [2]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_waited_too_long_is_refused_and_not_carried_out() {
        bound_this_test();
        let queues = Queues::new(limits::CLAIM_WAIT);
        let (_, mut late) = push(&queues, 1);
        tokio::time::advance(limits::CLAIM_WAIT / 2).await;
        let (_, mut in_time) = push(&queues, 2);
        tokio::time::advance(limits::CLAIM_WAIT / 2).await;
        assert_eq!(users(queues.next_call(coupon())), [2]);
        let told = late.try_recv();
        assert!(matches!(told, Ok(Ok(Reply::Decided(ClaimOutcome::Overloaded)))), "{told:?}");
        assert!(in_time.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn refuse_late_leaves_those_who_can_still_be_carried_out() {
        bound_this_test();
        let queues = Queues::new(limits::CLAIM_WAIT);
        let (_, mut first) = push(&queues, 1);
        queues.refuse_late(CouponId::compose(2, 1));
        tokio::time::advance(limits::CLAIM_WAIT - Duration::from_millis(1)).await;
        let (_, mut second) = push(&queues, 2);
        queues.refuse_late(coupon());
        assert!(first.try_recv().is_err(), "it has not waited long enough");
        tokio::time::advance(Duration::from_millis(1)).await;
        queues.refuse_late(coupon());
        let told = first.try_recv();
        assert!(matches!(told, Ok(Ok(Reply::Decided(ClaimOutcome::Overloaded)))), "{told:?}");
        assert!(second.try_recv().is_err());
        assert_eq!(users(queues.next_call(coupon())), [2]);
    }

    #[tokio::test]
    async fn next_call_takes_the_first_ones_and_leaves_the_others_to_the_next() {
        bound_this_test();
        let queues = Queues::new(limits::CLAIM_WAIT);
        let last = i64::try_from(limits::CLAIM_CALL_CLAIMS).expect("it is small") + 2;
        let _waiting: Vec<_> = (1..=last).map(|user| push(&queues, user)).collect();
        assert_eq!(users(queues.next_call(coupon())), (1..=last - 2).collect::<Vec<_>>());
        assert_eq!(users(queues.next_call(coupon())), [last - 1, last]);
    }

    #[tokio::test]
    async fn who_was_given_up_is_not_carried_out() {
        bound_this_test();
        let queues = Queues::new(limits::CLAIM_WAIT);
        let (mut given_up, mut told) = Waiting::new(UserId::new(1).unwrap(), None);
        given_up.give_up();
        assert!(matches!(told.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert!(queues.push(coupon(), given_up));
        let (_, _stays) = push(&queues, 2);
        assert_eq!(users(queues.next_call(coupon())), [2]);
    }

    #[tokio::test]
    async fn a_call_that_ends_leaves_the_queue_to_the_other_call() {
        bound_this_test();
        let queues = Queues::new(limits::CLAIM_WAIT);
        let begin = |user| push(&queues, user);
        let first: Vec<_> = (1..=2).map(begin).collect();
        assert!(first.iter().all(|(begins, _)| *begins));
        assert_eq!(users(queues.next_call(coupon())), [1, 2]);
        assert!(queues.next_call(coupon()).is_none(), "one of two calls ends");
        let (third, mut told) = begin(3);
        let (fourth, _told) = begin(4);
        assert_eq!((third, fourth), (true, false), "two calls are under way again");

        queues.end_call(coupon());
        assert!(matches!(told.try_recv(), Err(oneshot::error::TryRecvError::Empty)));
        queues.end_call(coupon());
        assert!(matches!(told.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert!(queues.lock().is_empty());
        queues.end_call(coupon());
    }
}
