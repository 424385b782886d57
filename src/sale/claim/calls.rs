//! One call of `lua/claim.lua` for claims of the same moment.
//!
//! # Model
//!
//! Each coupon has a queue. A claim that finds fewer than [`limits::CLAIM_CALLS_MAX`] calls under way for its coupon
//! begins one at once, so at low load no claim waits for another. Otherwise it queues. A call that ends is followed
//! by one for the claims that have queued meanwhile, up to [`limits::CLAIM_CALL_CLAIMS`], or, when thousands wait, a
//! quarter of them, up to [`limits::CLAIM_CALL_CLAIMS_MAX`]. So more claims share a call the busier Redis is.
//!
//! When claims come faster than they can be carried out, a claim that is still in the queue after `--claim-wait-ms`
//! leaves it and is told `overloaded`: it has certainly not been carried out.
//!
//! # What each failure does
//!
//! * A call fails: each of its claims is told so, which means *unknown, ask again*; the next call is independent of
//!   it.
//! * A client disconnects: calls are tasks of their own, so its claim is carried out all the same, like one whose
//!   reply is lost; no other claim notices.
//! * Redis hangs: a claim waits `--redis-timeout-ms` in all, in the queue and in the call, and up to
//!   [`limits::CLAIM_LOOK_PERIOD`] more. A claim that has left the queue without a call is not carried out.
//!
//! # What is not promised
//!
//! Claims are decided in the order in which they came only within a call.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;
use tokio::time::{Instant, timeout};

use crate::base::config::Config;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::kit::id::IdGenerator;
use crate::kit::redis::{Link, Redis, ServerId};
use crate::kit::script::VariadicScript;
use crate::sale::Failure;
use crate::sale::buyers::shards::Shards;
use crate::sale::claim::outcome::{ClaimOutcome, Reply};
use crate::sale::claim::queue::{Queues, Waiting};
use crate::sale::claim::sold_out::{Edition, SoldOutSales};
use crate::sale::epoch::Epoch;
use crate::sale::ids::{CouponId, UserId};
use crate::sale::keys::Keys;
use crate::sale::log::backlog::Backlog;

/// Calls the script. Clones share the queues.
#[derive(Clone)]
pub struct ClaimScript(Arc<Shared>);

struct Shared {
    redis: Redis,
    keys: Keys,
    script: VariadicScript,
    /// Number of shards of each sale by the script's last reply; a guess for other sales. The script compares it.
    shards: Cache<CouponId, Shards>,
    order_ids: Arc<IdGenerator>,
    bounds: Bounds,
    /// Loader of sales: has the epoch.
    epoch: Arc<Epoch>,
    /// Memory of sold-out sales, which is told each reply.
    sold_out: Arc<SoldOutSales>,
    queues: Queues,
    /// Owner of the calls.
    shutdown: Shutdown,
}

/// Bounds on claims, beside the stock.
pub struct Bounds {
    /// Backlog, with the bound on it; only its last look is read.
    pub backlog: Arc<Backlog>,
    /// Unpaid orders that a user may hold in a lane; 0 for no bound.
    pub unpaid_orders_max: u32,
    /// Waiting time after which a claim without a call is refused.
    pub claim_wait: Duration,
}

impl Bounds {
    /// The bounds of the settings.
    pub fn of(config: &Config, backlog: Arc<Backlog>) -> Self {
        let unpaid_orders_max = config.unpaid_orders_max;
        Self { backlog, unpaid_orders_max, claim_wait: config.claim_wait() }
    }
}

impl ClaimScript {
    /// Calls with these parts.
    pub fn new(
        redis: Redis,
        keys: Keys,
        order_ids: Arc<IdGenerator>,
        bounds: Bounds,
        epoch: Arc<Epoch>,
        sold_out: Arc<SoldOutSales>,
        shutdown: Shutdown,
    ) -> Self {
        Self(Arc::new(Shared {
            redis,
            keys,
            script: VariadicScript::new(include_str!("../../../lua/claim.lua")),
            shards: Cache::new(limits::SHARDS_MEMORY_COUPONS_MAX),
            order_ids,
            queues: Queues::new(bounds.claim_wait),
            bounds,
            epoch,
            sold_out,
            shutdown,
        }))
    }

    /// Asks the script about one claim, in one call with others of the same moment.
    ///
    /// # Errors
    ///
    /// When the outcome is unknown; asking again tells.
    pub async fn ask(&self, coupon: CouponId, user: UserId) -> Result<Reply, Failure> {
        let (claim, told) = Waiting::new(user);
        if self.0.queues.push(coupon, claim) {
            let calling = Calling { shared: self.0.clone(), coupon, over: false };
            self.0.shutdown.spawn(calling.run());
        }
        told.await.unwrap_or(Err(Failure::NoReply))
    }
}

/// Calls the script until no claim waits, as a task.
struct Calling {
    shared: Arc<Shared>,
    coupon: CouponId,
    /// Set when no claim waits any more, and the queues know that this task has ended.
    over: bool,
}

impl Calling {
    async fn run(mut self) {
        while let Some(mut claims) = self.shared.queues.next_call(self.coupon) {
            let users: Vec<UserId> = claims.iter().map(|claim| claim.user).collect();
            match self.call(&users, &mut claims).await {
                Ok(replies) => {
                    for (claim, reply) in claims.into_iter().zip(replies) {
                        claim.tell(Ok(reply));
                    }
                }
                Err(failure) => {
                    let failure = Arc::new(failure);
                    for claim in claims {
                        claim.tell(Err(Failure::Shared(failure.clone())));
                    }
                }
            }
        }
        self.over = true;
    }

    /// Calls the script. Claims that have waited too long meanwhile are refused from here: a clock for each claim
    /// would slow down all of them.
    async fn call(&self, users: &[UserId], claims: &mut [Waiting]) -> Result<Vec<Reply>, Failure> {
        let mut call = pin!(self.shared.call(self.coupon, users));
        loop {
            if let Ok(replies) = timeout(limits::CLAIM_LOOK_PERIOD, &mut call).await {
                return replies;
            }
            self.shared.queues.refuse_late(self.coupon);
            let claim_max = self.shared.redis.timeout();
            let late = |claim: &&mut Waiting| claim.since.elapsed() >= claim_max;
            claims.iter_mut().filter(late).for_each(Waiting::give_up);
        }
    }
}

impl Drop for Calling {
    /// After a panic: the next claims must not wait for a call that never ends.
    fn drop(&mut self) {
        if !self.over {
            self.shared.queues.end_call(self.coupon);
        }
    }
}

impl Shared {
    async fn call(&self, coupon: CouponId, users: &[UserId]) -> Result<Vec<Reply>, Failure> {
        let link = self.redis.link().await?;
        let epoch = self.epoch.get();
        let mut claims = Vec::with_capacity(users.len());
        for user in users {
            claims.push((*user, self.order_ids.next(&link).await?));
        }
        let asked_at = Instant::now();
        let shards = self.shards.get(&coupon).await.unwrap_or(Shards::ONE);
        let mut replies = self.run(&link, coupon, epoch, shards, &claims).await?;
        // The script has refused all of them, and carried none out.
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
        let keys = &self.keys;
        let lane = coupon.lane();
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

    /// Tells the memory of sold-out sales the result of a call.
    fn remember(
        &self,
        coupon: CouponId,
        server: &ServerId,
        epoch: i64,
        replies: &[Reply],
        asked_at: Instant,
    ) {
        // The last reply is the newest: a call that sells the last unit goes on with SOLD_OUT. Repeats say nothing of
        // the stock, nor does a lost shard.
        let says_something = |reply: &&Reply| {
            !matches!(reply, Reply::Decided(ClaimOutcome::AlreadyClaimed(_)) | Reply::Lost)
        };
        match replies.iter().rfind(says_something) {
            Some(Reply::SoldOut { additions }) => {
                let edition = Edition { server: server.clone(), epoch, additions: *additions };
                let is_refused = |reply: &&Reply| matches!(reply, Reply::SoldOut { .. });
                let refused = replies.iter().filter(is_refused).count();
                self.sold_out.note(coupon, edition, refused, asked_at);
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
        "SOLD_OUT" => return Some(Reply::SoldOut { additions: detail.parse().ok()? }),
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

    #[test]
    fn each_refusal_of_the_script_is_a_code_of_its_own() {
        let codes = [
            ("ACCEPTED", "accepted"),
            ("ALREADY_CLAIMED", "already_claimed"),
            ("NOT_STARTED", "sale_not_started"),
            ("PAUSED", "sale_paused"),
            ("ENDED", "sale_ended"),
            ("TOO_MANY_UNPAID", "too_many_unpaid_orders"),
            ("OVERLOADED", "overloaded"),
        ];
        for (reply, code) in codes {
            match decode_one(reply, "1500") {
                Some(Reply::Decided(outcome)) => assert_eq!(outcome.status().code, code, "{reply}"),
                other => panic!("{reply}: {other:?}"),
            }
        }
        assert!(matches!(decode_one("SOLD_OUT", "7"), Some(Reply::SoldOut { additions: 7 })));
        assert!(matches!(decode_one("NOT_LOADED", ""), Some(Reply::NotLoaded)));
        assert!(matches!(decode_one("STALE", ""), Some(Reply::Stale)));
        assert!(matches!(decode_one("RESHARDED", "2"), Some(Reply::Resharded(_))));
        assert!(matches!(decode_one("LOST", ""), Some(Reply::Lost)));
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
