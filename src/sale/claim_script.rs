//! One call of `lua/claim.lua` for claims of the same moment.
//!
//! # Model
//!
//! Each coupon has a queue. A claim that finds fewer than [`limits::CLAIM_CALLS_MAX`] calls under way for its
//! coupon begins one at once, so at low load nobody waits for anybody. Otherwise it queues, and a call
//! that ends is followed by one for those who have queued meanwhile, up to [`limits::CLAIM_CALL_CLAIMS`], or, when
//! thousands wait, a quarter of them, up to [`limits::CLAIM_CALL_CLAIMS_MAX`]. So the busier Redis is, the more claims
//! share a call, by themselves.
//!
//! When claims come faster than they can be carried out, a claim that is still in the queue after
//! [`limits::CLAIM_QUEUE_WAIT_MAX`] leaves it and is told `overloaded`: it has not been carried out, for certain.
//!
//! # What each failure does
//!
//! * A call fails: each of its claims is told so, which means *unknown, ask again*; the next call is
//!   another matter.
//! * A client goes away: calls are tasks of their own, so its claim is carried out all the same, like
//!   one whose reply is lost; nobody else notices.
//! * Redis hangs: a claim waits [`limits::REDIS_RESPONSE_TIMEOUT`] in all, in the queue and in the call. What
//!   is still in the queue when nobody waits for it any more is not carried out.
//!
//! # What is not promised
//!
//! That claims are decided in the order in which they came. They are within a call.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use moka::future::Cache;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::Failure;
use super::backlog::Backlog;
use super::claim::ClaimOutcome;
use super::ids::{CouponId, UserId};
use super::keys::Keys;
use super::shards::Shards;
use super::sold_out::{Edition, SoldOutSales};
use super::warm_up::WarmUp;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::kit::id::IdGenerator;
use crate::kit::redis::{Link, Redis, ServerId};
use crate::kit::script::VariadicScript;

/// What the script said about one claim.
#[derive(Debug)]
pub enum Reply {
    /// This is the user's answer.
    Decided(ClaimOutcome),
    /// No unit is left; units had come back so many times by then.
    SoldOut {
        /// How often units have come back.
        returns: i64,
    },
    /// The sale isn't in Redis.
    NotLoaded,
    /// The sale has another epoch than the caller's, or a layout that the script doesn't know.
    Stale,
    /// The sale has so many shards, and the call has named those of another number. Only if that was so twice.
    Resharded(Shards),
    /// Redis has lost the user's shard.
    Lost,
}

/// Calls the script. Clones share the queues.
#[derive(Clone)]
pub struct ClaimScript(Arc<Shared>);

struct Shared {
    redis: Redis,
    keys: Keys,
    script: VariadicScript,
    /// How many shards a sale had when the script last said so; of others a guess. The script compares.
    shards: Cache<CouponId, Shards>,
    order_ids: Arc<IdGenerator>,
    bounds: Bounds,
    /// Knows the epoch.
    warm_up: Arc<WarmUp>,
    /// Is told of sales that are sold out, and of those that aren't.
    sold_out: Arc<SoldOutSales>,
    /// Held for a few instructions, never across an await.
    queues: Mutex<HashMap<CouponId, Queue>>,
    /// Owns the calls.
    shutdown: Shutdown,
}

/// The claims on one coupon that wait for a call; it exists while there is a call under way.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    calls: usize,
}

struct Waiting {
    user: UserId,
    tell: oneshot::Sender<Result<Reply, Failure>>,
    /// Set, with the queues in hand, when a call takes it: from then on it may be carried out.
    taken: Arc<AtomicBool>,
}

/// What bounds claims, beside the stock.
pub struct Bounds {
    /// Says whether more claims may be accepted; looked at, never asked.
    pub backlog: Arc<Backlog>,
    /// Unpaid orders that a user may hold in a lane; 0 for no bound.
    pub unpaid_orders_max: u32,
}

impl ClaimScript {
    /// Puts the parts together.
    pub fn new(
        redis: Redis,
        keys: Keys,
        order_ids: Arc<IdGenerator>,
        bounds: Bounds,
        warm_up: Arc<WarmUp>,
        sold_out: Arc<SoldOutSales>,
        shutdown: Shutdown,
    ) -> Self {
        Self(Arc::new(Shared {
            redis,
            keys,
            script: VariadicScript::new(include_str!("../../lua/claim.lua")),
            shards: Cache::new(limits::SHARDS_MEMORY_COUPONS_MAX),
            order_ids,
            bounds,
            warm_up,
            sold_out,
            queues: Mutex::default(),
            shutdown,
        }))
    }

    /// Asks the script about one claim, in one call with others that come at the same moment.
    ///
    /// # Errors
    ///
    /// The outcome is unknown; asking again tells.
    pub async fn ask(&self, coupon: CouponId, user: UserId) -> Result<Reply, Failure> {
        let (tell, mut told) = oneshot::channel();
        let (asked_at, taken) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        if self.enqueue(coupon, Waiting { user, tell, taken: taken.clone() }) {
            let calling = Calling { shared: self.0.clone(), coupon, over: false };
            self.0.shutdown.spawn(calling.run());
        }
        let waited = timeout_at(asked_at + limits::CLAIM_QUEUE_WAIT_MAX, &mut told).await;
        if waited.is_err() && self.leave(&mut told, &taken) {
            return Ok(Reply::Decided(ClaimOutcome::Overloaded));
        }
        let told = match waited {
            Ok(told) => told,
            Err(_) => timeout_at(asked_at + limits::REDIS_RESPONSE_TIMEOUT, told)
                .await
                .map_err(|_| Failure::NoReply)?,
        };
        told.unwrap_or(Err(Failure::NoReply))
    }

    /// True if the claim was still in the queue; no call takes it then.
    fn leave(
        &self,
        told: &mut oneshot::Receiver<Result<Reply, Failure>>,
        taken: &AtomicBool,
    ) -> bool {
        let _queues = self.0.queues.lock().expect("nobody panics with the queues in hand");
        let is_left = !taken.load(Ordering::Relaxed);
        if is_left {
            told.close();
        }
        is_left
    }

    /// True if the caller has to begin a call.
    fn enqueue(&self, coupon: CouponId, claim: Waiting) -> bool {
        let mut queues = self.0.queues.lock().expect("nobody panics with the queues in hand");
        let queue = queues.entry(coupon).or_default();
        queue.waiting.push_back(claim);
        let begin = queue.calls < limits::CLAIM_CALLS_MAX;
        queue.calls += usize::from(begin);
        begin
    }
}

/// A task that calls the script until nobody waits.
struct Calling {
    shared: Arc<Shared>,
    coupon: CouponId,
    /// Set when nobody waits any more, and the queue knows that this task has ended.
    over: bool,
}

impl Calling {
    async fn run(mut self) {
        while let Some(claims) = self.next_claims() {
            let users: Vec<UserId> = claims.iter().map(|claim| claim.user).collect();
            match self.shared.call(self.coupon, &users).await {
                Ok(replies) => {
                    for (claim, reply) in claims.into_iter().zip(replies) {
                        // Who has gone away finds out by asking again.
                        let _ = claim.tell.send(Ok(reply));
                    }
                }
                Err(failure) => {
                    let failure = Arc::new(failure);
                    for claim in claims {
                        let _ = claim.tell.send(Err(Failure::Shared(failure.clone())));
                    }
                }
            }
        }
    }

    /// The claims of the next call, without those that nobody waits for any more. When there are none, the
    /// queue is told in the same step, so that whoever comes next begins a call. Costs nothing for those who stay in
    /// the queue: in an overload they are thousands.
    fn next_claims(&mut self) -> Option<Vec<Waiting>> {
        let mut queues = self.shared.queues.lock().expect("nobody panics with the queues in hand");
        let waiting = &mut queues.get_mut(&self.coupon)?.waiting;
        let count = call_size(waiting.len());
        let mut claims = Vec::with_capacity(count.min(waiting.len()));
        while claims.len() < count
            && let Some(claim) = waiting.pop_front()
        {
            if !claim.tell.is_closed() {
                claim.taken.store(true, Ordering::Relaxed);
                claims.push(claim);
            }
        }
        if !claims.is_empty() {
            return Some(claims);
        }
        self.over = true;
        end_call(&mut queues, self.coupon);
        None
    }
}

impl Drop for Calling {
    /// After a panic: the next claims must not wait for a call that never ends.
    fn drop(&mut self) {
        if !self.over
            && let Ok(mut queues) = self.shared.queues.lock()
        {
            end_call(&mut queues, self.coupon);
        }
    }
}

/// How many claims share a call when so many wait: more in an overload, where each call that Redis syncs its file for
/// has to answer more of them; otherwise not, because the service would be idle for longer.
fn call_size(waiting: usize) -> usize {
    (waiting / 4).clamp(limits::CLAIM_CALL_CLAIMS, limits::CLAIM_CALL_CLAIMS_MAX)
}

/// With the last call goes the queue, and whoever waits in it is told that there is no reply.
fn end_call(queues: &mut HashMap<CouponId, Queue>, coupon: CouponId) {
    if let Some(queue) = queues.get_mut(&coupon) {
        queue.calls -= 1;
        if queue.calls == 0 {
            queues.remove(&coupon);
        }
    }
}

impl Shared {
    async fn call(&self, coupon: CouponId, users: &[UserId]) -> Result<Vec<Reply>, Failure> {
        let link = self.redis.link().await?;
        let epoch = self.warm_up.epoch();
        let mut claims = Vec::with_capacity(users.len());
        for user in users {
            claims.push((*user, self.order_ids.next(&link).await?));
        }
        let asked_at = Instant::now();
        let shards = self.shards.get(&coupon).await.unwrap_or(Shards::ONE);
        let mut replies = self.run(&link, coupon, epoch, shards, &claims).await?;
        // Then it has said so to all of them, and carried none out.
        if let Some(&Reply::Resharded(shards)) = replies.first() {
            self.shards.insert(coupon, shards).await;
            replies = self.run(&link, coupon, epoch, shards, &claims).await?;
        }
        self.remember(coupon, link.server(), epoch, &replies, asked_at);
        Ok(replies)
    }

    async fn run(
        &self,
        link: &Link,
        coupon: CouponId,
        epoch: i64,
        shards: Shards,
        claims: &[(UserId, i64)],
    ) -> Result<Vec<Reply>, Failure> {
        let (keys, lane) = (&self.keys, coupon.lane());
        let mut names = vec![keys.coupon(coupon), keys.log(lane), keys.unpaid(lane)];
        names.extend(claims.iter().map(|(user, _)| keys.buyers(coupon, shards.of(*user))));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let has_room = i64::from(self.bounds.backlog.has_room());
        let unpaid_max = i64::from(self.bounds.unpaid_orders_max);
        let mut arguments = vec![coupon.get(), epoch, has_room, unpaid_max, shards.count().into()];
        arguments.extend(claims.iter().flat_map(|(user, order)| [user.get(), *order]));
        let replies: Vec<String> = self.script.run(link, &names, &arguments[..]).await?;
        decode(&replies, claims.len())
    }

    /// What a call has said about the sale, for those who need not be asked about any more.
    fn remember(
        &self,
        coupon: CouponId,
        server: &ServerId,
        epoch: i64,
        replies: &[Reply],
        asked_at: Instant,
    ) {
        // The last one knows most: a call that sells the last unit goes on with SOLD_OUT. Repeats say nothing of the
        // stock, nor does a shard that is lost.
        let says_something = |reply: &&Reply| {
            !matches!(reply, Reply::Decided(ClaimOutcome::AlreadyClaimed(_)) | Reply::Lost)
        };
        match replies.iter().rfind(says_something) {
            Some(Reply::SoldOut { returns }) => {
                let edition = Edition { server: server.clone(), epoch, returns: *returns };
                self.sold_out.note(coupon, edition, asked_at);
            }
            Some(_) => self.sold_out.forget(coupon),
            None => {}
        }
    }
}

/// Reads the replies to so many claims: a code and its detail for each.
fn decode(replies: &[String], claims: usize) -> Result<Vec<Reply>, Failure> {
    let unknown = || Failure::UnknownReply(replies.join(" "));
    if replies.len() != 2 * claims {
        return Err(unknown());
    }
    let pairs = replies.chunks_exact(2);
    pairs.map(|pair| decode_one(&pair[0], &pair[1]).ok_or_else(unknown)).collect()
}

fn decode_one(code: &str, detail: &str) -> Option<Reply> {
    let outcome = match code {
        "ACCEPTED" => ClaimOutcome::Accepted(detail.parse().ok()?),
        "ALREADY_CLAIMED" => ClaimOutcome::AlreadyClaimed(detail.parse().ok()?),
        "NOT_STARTED" => ClaimOutcome::NotStarted(Duration::from_millis(detail.parse().ok()?)),
        "PAUSED" => ClaimOutcome::Paused,
        "ENDED" => ClaimOutcome::Ended,
        "SOLD_OUT" => return Some(Reply::SoldOut { returns: detail.parse().ok()? }),
        "TOO_MANY_UNPAID" => ClaimOutcome::TooManyUnpaid,
        "OVERLOADED" => ClaimOutcome::Overloaded,
        "NOT_LOADED" => return Some(Reply::NotLoaded),
        "STALE" => return Some(Reply::Stale),
        "RESHARDED" => return Some(Reply::Resharded(Shards::new(detail.parse().ok()?)?)),
        "LOST" => return Some(Reply::Lost),
        _ => return None,
    };
    Some(Reply::Decided(outcome))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sale::claim::STATUSES;

    #[test]
    fn every_row_of_the_table_is_what_the_script_s_reply_leads_to() {
        for row in &STATUSES {
            let detail = if row.reply == "NOT_STARTED" { "1500" } else { "7" };
            match decode_one(row.reply, detail) {
                Some(Reply::Decided(outcome)) => assert_eq!(outcome.status(), row),
                Some(Reply::SoldOut { .. }) => assert_eq!(ClaimOutcome::SoldOut.status(), row),
                Some(Reply::NotLoaded) => assert_eq!(ClaimOutcome::NotFound.status(), row),
                Some(Reply::Stale | Reply::Resharded(_) | Reply::Lost) => {
                    assert_eq!((row.http, row.code), (503, "unavailable"))
                }
                None => panic!("{row:?}"),
            }
        }
    }

    #[test]
    fn a_call_takes_more_when_thousands_wait() {
        let sizes = [0, 1, 128, 512, 513, 2_000, 1_000_000].map(call_size);
        assert_eq!(sizes, [128, 128, 128, 128, 128, 500, 512]);
    }

    #[test]
    fn a_reply_that_this_version_does_not_know_is_a_failure() {
        for reply in [&["MAYBE", ""][..], &["ACCEPTED", "x"], &["ACCEPTED"], &[]] {
            let reply: Vec<String> = reply.iter().map(|part| (*part).to_owned()).collect();
            assert!(matches!(decode(&reply, 1), Err(Failure::UnknownReply(_))), "{reply:?}");
        }
        let one_too_many = ["PAUSED", "", "PAUSED", ""].map(str::to_owned);
        assert!(decode(&one_too_many, 1).is_err());
    }
}
