//! What a process remembers of sales, so that most claims of a crowd are answered without asking Redis: which ones are
//! sold out, and the orders of their buyers.

// Is told of units that are added.
pub mod listener;

// Memory of sold-out sales.
pub mod sold_out;

// Memory of the orders of buyers.
pub mod accepted;

// Whether it is told of all of them.
pub mod listening;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::time::Instant;

use crate::base::shutdown::Shutdown;
use crate::claim::outcome::{ClaimOutcome, Reply};
use crate::store::ids::{CouponId, UserId};
use crate::store::keys::Keys;
use crate::store::redis::{Redis, ServerId};
use accepted::AcceptedOrders;
use listening::{Listening, SaleVersion};
use sold_out::SoldOutSales;

/// Clones share the memories.
#[derive(Clone)]
pub struct Memories {
    pub sold_out: Arc<SoldOutSales>,
    pub accepted: Arc<AcceptedOrders>,
    listening: Arc<Listening>,
}

impl Memories {
    /// Empty memories. An answer of Redis is used for these times: one about a sold-out sale, and one about an order.
    /// Zero turns a memory off.
    pub fn new(
        redis: Redis,
        keys: Keys,
        (sold_out, accepted): (Duration, Duration),
        shutdown: Shutdown,
    ) -> Self {
        let listening = Arc::new(Listening::default());
        let sold_out = SoldOutSales::new(redis, keys, sold_out, listening.clone(), shutdown);
        let accepted = AcceptedOrders::new(accepted, listening.clone());
        Self { sold_out: Arc::new(sold_out), accepted: Arc::new(accepted), listening }
    }

    /// Starts to use the memories. The caller is subscribed to added units on this run of Redis; `connected` becomes
    /// false when the subscription ends.
    pub fn begin_listening(&self, server: ServerId, connected: Arc<AtomicBool>) {
        // Nothing is remembered until the new connection is in place.
        self.end_listening();
        self.listening.begin(server, connected);
    }

    /// Forgets everything: from now on, units may be added without notice.
    pub fn end_listening(&self) {
        self.listening.end();
        self.sold_out.forget_all();
        self.accepted.forget_all();
    }

    /// Learns from the replies to a call that was asked at `asked_at` and found this version of the sale; `None` before
    /// the sale opens, or if the call was refused as a whole.
    pub fn learn<'a>(
        &self,
        coupon: CouponId,
        version: Option<SaleVersion>,
        replies: impl DoubleEndedIterator<Item = (&'a UserId, &'a Reply)> + Clone,
        asked_at: Instant,
    ) {
        let Some(version) = version else { return self.sold_out.forget(coupon) };
        let orders = replies.clone().filter_map(|(user, reply)| Some((*user, reply.order()?)));
        self.accepted.note(coupon, version.clone(), asked_at, orders);
        let replies = replies.map(|(_, reply)| reply);
        // The last reply is the newest: claims after the last unit of a call find the sale sold out. Repeats say
        // nothing about the stock, nor does a lost shard.
        let says_something = |reply: &&Reply| {
            !matches!(reply, Reply::Decided(ClaimOutcome::AlreadyClaimed(_)) | Reply::Lost)
        };
        match replies.clone().rfind(says_something) {
            Some(Reply::SoldOut) => {
                let refused = replies.filter(|reply| matches!(reply, Reply::SoldOut)).count();
                self.sold_out.note(coupon, version, refused, asked_at);
            }
            Some(_) => self.sold_out.forget(coupon),
            None => {}
        }
    }

    /// Notes that Redis has answered a question that was asked on the connection at this time: the messages about all
    /// units added before then have arrived.
    pub fn heard(&self, asked_at: Instant) {
        self.listening.heard(asked_at);
    }

    /// Forgets a sale, because units were added.
    pub fn forget(&self, coupon: CouponId) {
        self.sold_out.forget(coupon);
        self.accepted.forget(coupon);
    }

    /// Drops the sales about which Redis hasn't been asked for a while.
    pub fn forget_idle(&self) {
        self.sold_out.forget_idle();
        self.accepted.forget_idle();
    }
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;
    use tokio::time::advance;

    use super::*;
    use crate::base::limits;
    use crate::store::ids::OrderId;

    const MEMORY: Duration = Duration::from_millis(400);

    /// Later answers about the same version bring none of the dropped orders back.
    #[tokio::test(start_paused = true)]
    async fn forget_idle_drops_the_accepted_orders_of_sales_that_were_not_asked_about_for_long() {
        bound_this_test();
        let redis = Redis::new("redis://127.0.0.1:1").expect("a URL");
        let memories = Memories::new(redis, Keys::new("t"), (MEMORY, MEMORY), Shutdown::default());
        let server = ServerId::named("a");
        // A time of 0 would look like no time at all.
        advance(MEMORY).await;
        memories.begin_listening(server.clone(), Arc::new(AtomicBool::new(true)));
        let coupon = CouponId::compose(1, 1);
        let user = |id| UserId::new(id).expect("a positive number");
        let note = |id| {
            let version = SaleVersion { server: server.clone(), epoch: 7, restocks: 3 };
            let order = (user(id), OrderId::new(1_000 * id).expect("a positive number"));
            memories.accepted.note(coupon, version, Instant::now(), [order].into_iter());
        };
        let told = || {
            memories.heard(Instant::now());
            [1, 2].map(|id| memories.accepted.order_of(coupon, user(id)).is_some())
        };
        note(1);
        assert_eq!(told(), [true, false]);
        advance(MEMORY + limits::SOLD_OUT_KEPT).await;
        memories.forget_idle();
        note(2);
        assert_eq!(told(), [false, true]);
    }
}
