//! One call of `lua/claim.lua` for claims of the same moment.
//!
//! # Model
//!
//! Each coupon has a queue. A claim that finds fewer than [`limits::CLAIM_CALLS_MAX`] calls under way for its coupon
//! begins one at once, so at low load no claim waits for another. Otherwise it queues. When a call ends, the next one
//! takes the claims that have queued meanwhile: up to [`limits::CLAIM_CALL_CLAIMS`], or a quarter of those that wait if
//! that is more, up to [`limits::CLAIM_CALL_CLAIMS_MAX`]. So the busier Redis is, the more claims share a call.
//!
//! When claims come faster than they can be carried out, a claim that is still in the queue after `--claim-wait-ms`
//! leaves it and is told `overloaded`: it has certainly not been carried out.
//!
//! # What each failure does
//!
//! * A call fails: each of its claims is told so, which means *unknown, ask again*. The next call doesn't depend on it.
//! * A client disconnects: a claim that is still in the queue is dropped. A claim in a call is carried out all the
//!   same, like one whose reply is lost, because calls are tasks of their own. No other claim notices.
//! * Redis hangs: a claim waits `--redis-timeout-ms` in all, in the queue and in the call, and up to
//!   [`limits::CLAIM_CHECK_PERIOD`] more. A claim that has left the queue without a call is not carried out.
//!
//! # What is not promised
//!
//! Claims are decided in the order of their arrival only within a call.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;
use tokio::time::{Instant, timeout};

use crate::base::config::Config;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::claim::known_shards::KnownShards;
use crate::claim::memory::Memories;
use crate::claim::memory::listening::SaleVersion;
use crate::claim::outcome::{ClaimOutcome, Reply};
use crate::claim::queue::{Queues, Waiting};
use crate::claim::trace::probe::Probe;
use crate::coupon::buyers::shards::Shards;
use crate::fence::LaneStates;
use crate::fence::unwritten::book::UnwrittenBook;
use crate::log::backlog::Backlog;
use crate::store::Failure;
use crate::store::durability::{Durability, OwnConnection};
use crate::store::ids::{CouponId, OrderId, UserId};
use crate::store::keys::Keys;
use crate::store::redis::{Link, Redis};
use crate::store::script::VariadicScript;

/// Keys of a call beside the shards.
const KEYS: usize = 4;

/// Calls the script. Clones share the queues.
#[derive(Clone)]
pub struct ClaimScript(Arc<Shared>);

struct Shared {
    redis: Redis,
    keys: Keys,
    script: VariadicScript,
    /// Shards of each sale by the script's last reply; the script compares them. For other sales, a guess is sent.
    shards: KnownShards,
    bounds: Bounds,
    /// Epoch of each lane, and whether it is open.
    lanes: Arc<LaneStates>,
    /// How durable a claim has to be before it is confirmed.
    durability: Arc<Durability>,
    /// Claims that this process has accepted and that aren't committed yet.
    unwritten: Arc<UnwrittenBook>,
    /// They learn from each reply.
    memories: Memories,
    queues: Queues,
    /// Owner of the calls.
    shutdown: Shutdown,
}

/// Bounds on claims, beside the stock.
pub struct Bounds {
    /// Backlog, with the bound on it; claims read only its last count.
    pub backlog: Arc<Backlog>,
    /// Unpaid orders that a user may hold in a lane; 0 for no bound.
    pub unpaid_orders_max: u32,
    /// Time after which a claim that still waits for a call is refused.
    pub claim_wait: Duration,
}

impl Bounds {
    pub fn of(config: &Config, backlog: Arc<Backlog>) -> Self {
        let unpaid_orders_max = config.unpaid_orders_max;
        Self { backlog, unpaid_orders_max, claim_wait: config.claim_wait() }
    }
}

impl ClaimScript {
    pub fn new(
        (redis, keys): (Redis, Keys),
        bounds: Bounds,
        lanes: Arc<LaneStates>,
        (durability, unwritten, memories): (Arc<Durability>, Arc<UnwrittenBook>, Memories),
        shutdown: Shutdown,
    ) -> Self {
        Self(Arc::new(Shared {
            redis,
            keys,
            script: VariadicScript::new(include_str!("../../lua/claim.lua")),
            shards: KnownShards::default(),
            queues: Queues::new(bounds.claim_wait),
            bounds,
            lanes,
            durability,
            unwritten,
            memories,
            shutdown,
        }))
    }

    /// Asks the script about one claim, in one call with others of the same moment. A probe notes the times.
    ///
    /// # Errors
    ///
    /// When the outcome is unknown; asking again tells.
    pub async fn ask(
        &self,
        coupon: CouponId,
        user: UserId,
        probe: Option<&Arc<Probe>>,
    ) -> Result<Reply, Failure> {
        let (claim, told) = Waiting::new(user, probe.cloned());
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
            // A call without measured claims reads no clock.
            let probed_at = claims.iter().any(Waiting::is_probed).then(Instant::now);
            match self.call(&users, &mut claims).await {
                Ok(replies) => {
                    if let Some(called_at) = probed_at {
                        let answered = claims.iter().zip(&replies);
                        answered.for_each(|(it, reply)| it.note(called_at, users.len(), reply));
                    }
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

    /// Calls the script, and refuses claims that wait too long meanwhile: a timer for each claim would slow down all of
    /// them.
    async fn call(&self, users: &[UserId], claims: &mut [Waiting]) -> Result<Vec<Reply>, Failure> {
        let mut call = pin!(self.shared.call(self.coupon, users));
        loop {
            if let Ok(replies) = timeout(limits::CLAIM_CHECK_PERIOD, &mut call).await {
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
        let shards = self.shards.of(coupon).unwrap_or(Shards::ONE);
        let mut asked = self.ask(coupon, shards, users).await?;
        // All claims get this reply, and none was carried out.
        if let Some(&Reply::Resharded(shards)) = asked.reply.claims.first() {
            self.shards.note(coupon, shards);
            asked = self.ask(coupon, shards, users).await?;
        }
        self.confirm(coupon, users, asked)
    }

    /// Runs the script, and waits for the replicas that have to have its effects.
    async fn ask(
        &self,
        coupon: CouponId,
        shards: Shards,
        users: &[UserId],
    ) -> Result<Asked, Failure> {
        let own =
            (self.durability.level().replicas() > 0).then(|| self.durability.own_connection());
        let link = own.as_ref().map_or(&self.redis, OwnConnection::redis).link().await?;
        let epoch = self.lanes.admit(coupon.lane())?;
        self.durability.require(&link).await?;
        let asked_at = Instant::now();
        let (reply, replicas) = self.run(&link, coupon, (epoch, shards), users).await?;
        Ok(Asked { link, epoch, reply, replicas, asked_at })
    }

    /// The replies, if users may be told: the accepted claims are noted, the lane still has the epoch of the call, and the
    /// claims are as durable as they have to be.
    fn confirm(
        &self,
        coupon: CouponId,
        users: &[UserId],
        asked: Asked,
    ) -> Result<Vec<Reply>, Failure> {
        let Asked { link, epoch, reply: CallReply { claims, restocks }, replicas, asked_at } =
            asked;
        let told = users.iter().zip(&claims);
        self.unwritten.note(coupon, told.filter_map(|(user, reply)| Some((*user, reply.order()?))));
        // A recovery may have collected the claims just before these were noted: then nothing may be confirmed.
        if self.lanes.admit(coupon.lane())? != epoch {
            return Err(self.lanes.suspect(coupon.lane()));
        }
        self.durability.confirm(link.server(), replicas)?;
        let server = link.server().clone();
        let version = restocks.map(|restocks| SaleVersion { server, epoch, restocks });
        self.memories.learn(coupon, version, users.iter().zip(&claims), asked_at);
        Ok(claims)
    }

    /// Runs the script. Returns its reply, and the number of replicas that have its effects, if the call waits for any.
    async fn run(
        &self,
        link: &Link,
        coupon: CouponId,
        (epoch, shards): (i64, Shards),
        users: &[UserId],
    ) -> Result<(CallReply, u32), Failure> {
        let keys = &self.keys;
        let lane = coupon.lane();
        let has_room = i64::from(self.bounds.backlog.has_room());
        let unpaid_max = self.bounds.unpaid_orders_max;
        let add = |command: &mut Cmd| {
            command.arg(keys.coupon(coupon)).arg(keys.lane(lane));
            command.arg(keys.log(lane)).arg(keys.unpaid(lane));
            let mut names = keys.shards(coupon, shards.version());
            for user in users {
                command.arg(names.name(shards.of(*user)));
            }
            command.arg(coupon.get()).arg(lane.get()).arg(epoch).arg(has_room).arg(unpaid_max);
            command.arg(shards.to_string());
            for user in users {
                command.arg(user.get());
            }
        };
        let keys = KEYS + users.len();
        let (reply, replicas): (Vec<String>, u32) = match self.durability.level().replicas() {
            0 => (self.script.run_with(link, keys, add).await?, 0),
            replicas => {
                let wait = (replicas, self.redis.timeout() * 3 / 4);
                self.script.run_and_wait(link, keys, add, wait).await?
            }
        };
        let read =
            decode(&reply, users.len()).ok_or_else(|| Failure::UnknownReply(reply.join(" ")))?;
        Ok((read, replicas))
    }
}

/// A call of the script that has been answered.
struct Asked {
    link: Arc<Link>,
    epoch: i64,
    reply: CallReply,
    /// Replicas that have the effects of the call; 0 if it waited for none.
    replicas: u32,
    asked_at: Instant,
}

/// Reply of the script to a call.
#[derive(Debug)]
struct CallReply {
    claims: Vec<Reply>,
    /// How often units were added; `None` before the sale opens, or if the call was refused as a whole.
    restocks: Option<i64>,
}

/// Reads the reply to this number of claims: a letter for each, a number, the order id of the first accepted claim, and
/// the order ids of repeats. `None` if it isn't such a reply.
fn decode(reply: &[String], claims: usize) -> Option<CallReply> {
    let (letters, number, first, orders) = match reply {
        [letters, number, first, orders @ ..] if letters.len() == claims => {
            (letters, number, first, orders)
        }
        _ => return None,
    };
    let mut accepted = first.parse::<OrderId>().ok().into_iter().flat_map(OrderId::following);
    let mut orders = orders.iter();
    let with_orders = letters.bytes().map(|letter| match letter {
        b'A' => Some(Reply::Decided(ClaimOutcome::Accepted(accepted.next()?))),
        b'D' => Some(Reply::Decided(ClaimOutcome::AlreadyClaimed(orders.next()?.parse().ok()?))),
        _ => decode_refusal(letter, number),
    });
    let claims = with_orders.collect::<Option<Vec<Reply>>>()?;
    let is_of_sale = |reply: &Reply| {
        !matches!(reply, Reply::Resharded(_) | Reply::Decided(ClaimOutcome::NotStarted(_)))
    };
    let restocks = claims.iter().all(is_of_sale).then(|| number.parse().ok()).flatten();
    Some(CallReply { claims, restocks })
}

fn decode_refusal(letter: u8, number: &str) -> Option<Reply> {
    let outcome = match letter {
        b'N' => ClaimOutcome::NotStarted(Duration::from_millis(number.parse().ok()?)),
        b'P' => ClaimOutcome::Paused,
        b'E' => ClaimOutcome::Ended,
        b'S' => return Some(Reply::SoldOut),
        b'U' => ClaimOutcome::TooManyUnpaid,
        b'O' => ClaimOutcome::Overloaded,
        b'L' => return Some(Reply::NotLoaded),
        b'T' => return Some(Reply::Stale),
        b'V' => return Some(Reply::Recovering),
        b'R' => return Some(Reply::Resharded(number.parse().ok()?)),
        b'X' => return Some(Reply::Lost),
        _ => return None,
    };
    Some(Reply::Decided(outcome))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fuzzing::Fuzz;

    fn read(reply: &[&str], claims: usize) -> Option<Vec<Reply>> {
        Some(read_all(reply, claims)?.claims)
    }

    fn read_all(reply: &[&str], claims: usize) -> Option<CallReply> {
        let reply: Vec<String> = reply.iter().map(|part| (*part).to_owned()).collect();
        decode(&reply, claims)
    }

    #[test]
    fn each_refusal_of_the_script_is_a_code_of_its_own() {
        let codes = [
            ("A", "accepted"),
            ("D", "already_claimed"),
            ("N", "sale_not_started"),
            ("P", "sale_paused"),
            ("E", "sale_ended"),
            ("U", "too_many_unpaid_orders"),
            ("O", "overloaded"),
        ];
        for (letter, code) in codes {
            match read(&[letter, "1500", "700", "7"], 1).as_deref() {
                Some([Reply::Decided(outcome)]) => {
                    assert_eq!(outcome.status().code, code, "{letter}")
                }
                other => panic!("{letter}: {other:?}"),
            }
        }
        let alone =
            |letter, number| read(&[letter, number, ""], 1).and_then(|mut replies| replies.pop());
        assert!(matches!(alone("S", "7"), Some(Reply::SoldOut)));
        assert!(matches!(alone("L", ""), Some(Reply::NotLoaded)));
        assert!(matches!(alone("T", ""), Some(Reply::Stale)));
        assert!(matches!(alone("V", ""), Some(Reply::Recovering)));
        assert!(matches!(alone("R", "2"), Some(Reply::Resharded(_))));
        assert!(matches!(alone("R", "2@5"), Some(Reply::Resharded(_))));
        assert!(matches!(alone("X", ""), Some(Reply::Lost)));
    }

    #[test]
    fn accepted_claims_have_ids_from_the_first_on_and_repeats_have_their_own() {
        let orders: Vec<i64> = read(&["DASAD", "1", "700", "7", "8"], 5)
            .expect("a reply to five claims")
            .into_iter()
            .filter_map(|reply| match reply {
                Reply::Decided(ClaimOutcome::Accepted(order)) => Some(order.get()),
                Reply::Decided(ClaimOutcome::AlreadyClaimed(order)) => Some(-order.get()),
                _ => None,
            })
            .collect();
        assert_eq!(orders, [-7, 700, 701, -8]);
    }

    #[test]
    fn the_number_counts_restocks_where_it_is_of_the_sale() {
        let restocks = |reply: &[&str]| read_all(reply, 1).expect("a reply").restocks;
        assert_eq!((restocks(&["S", "7", ""]), restocks(&["A", "0", "9"])), (Some(7), Some(0)));
        assert_eq!((restocks(&["N", "1500", ""]), restocks(&["R", "2", ""])), (None, None));
        assert_eq!((restocks(&["L", "", ""]), restocks(&["X", "3", ""])), (None, Some(3)));
        let of_two = |reply: &[&str]| read_all(reply, 2).expect("a reply").restocks;
        assert_eq!(
            (of_two(&["DN", "1500", "", "7"]), of_two(&["DS", "4", "", "7"])),
            (None, Some(4))
        );
    }

    #[test]
    fn a_reply_that_this_version_does_not_know_is_a_failure() {
        for reply in [
            &["Q", "", ""][..],
            &["D", "", ""],
            &["D", "", "", "x"],
            &["N", "x", ""],
            &["A", "", ""],
            &["A", "", "x"],
            &["A", ""],
            &["AA", "", "7"],
            &[],
        ] {
            assert!(read(reply, 1).is_none(), "{reply:?}");
        }
    }

    /// A reply is read as a whole or not at all: one answer for each claim, and the ids of accepted claims rise one by
    /// one.
    #[test]
    fn fuzz_replies() {
        let seeds = [
            "AAA|1500|700",
            "ADA|7|700|701",
            "NNN|1500|",
            "SSS|3|",
            "RRR|64|",
            "UOP|0|",
            "LTV|x|",
            "QXE|1|",
        ];
        let seeds = seeds.map(|seed| seed.as_bytes().to_vec()).to_vec();
        let words = &["|", "A", "D", "N", "R", "-1", "18446744073709551616", "0", "\u{fffd}"];
        Fuzz { target: "replies", seeds, words }.run(|input| {
            let text = String::from_utf8_lossy(input);
            let reply: Vec<String> = text.split('|').map(str::to_owned).collect();
            let Some(read) = decode(&reply, 3) else { return };
            assert_eq!(read.claims.len(), 3);
            let mut next = reply[2].parse::<OrderId>().ok().map(OrderId::get);
            for (letter, claim) in reply[0].bytes().zip(&read.claims) {
                let accepted = match claim {
                    Reply::Decided(ClaimOutcome::Accepted(order)) => Some(order.get()),
                    _ => None,
                };
                assert_eq!(accepted.is_some(), letter == b'A');
                if accepted.is_some() {
                    assert_eq!(accepted, next);
                    next = next.and_then(|order| order.checked_add(1));
                }
            }
        });
    }
}
