//! Memories of a process about sales, so that most claims of a crowd are answered without asking Redis: that they are
//! sold out, and the orders of their buyers.

// News of units that have come back.
pub mod listener;

// Memory of sold-out sales.
pub mod sold_out;

// Memory of the orders of buyers.
pub mod promised;

// Whether the news arrive.
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
use listening::{Edition, Listening};
use promised::PromisedOrders;
use sold_out::SoldOutSales;

/// The memories. Clones share them.
#[derive(Clone)]
pub struct Memories {
    /// Sales that are sold out.
    pub sold_out: Arc<SoldOutSales>,
    /// Orders of buyers.
    pub promised: Arc<PromisedOrders>,
    listening: Arc<Listening>,
}

impl Memories {
    /// Empty memories, which believe an answer of Redis about a sold-out sale, and about an order, for these times; zero for
    /// not at all.
    pub fn new(
        redis: Redis,
        keys: Keys,
        (sold_out, promised): (Duration, Duration),
        shutdown: Shutdown,
    ) -> Self {
        let listening = Arc::new(Listening::default());
        let sold_out = SoldOutSales::new(redis, keys, sold_out, listening.clone(), shutdown);
        let promised = PromisedOrders::new(promised, listening.clone());
        Self { sold_out: Arc::new(sold_out), promised: Arc::new(promised), listening }
    }

    /// Begins to believe: from now on every return of a unit is heard of, on a connection to this life of Redis,
    /// until the connection clears `connected`.
    pub fn begin_listening(&self, server: ServerId, connected: Arc<AtomicBool>) {
        // Until the new connection stands there, nothing is remembered.
        self.end_listening();
        self.listening.begin(server, connected);
    }

    /// Ends all belief: units may come back unheard from now on.
    pub fn end_listening(&self) {
        self.listening.end();
        self.sold_out.forget_all();
        self.promised.forget_all();
    }

    /// Learns from the replies to a call, asked at `asked_at`, which found this edition of the sale; `None` if it isn't open.
    pub fn learn<'a>(
        &self,
        coupon: CouponId,
        edition: Option<Edition>,
        replies: impl DoubleEndedIterator<Item = (&'a UserId, &'a Reply)> + Clone,
        asked_at: Instant,
    ) {
        let Some(edition) = edition else { return self.sold_out.forget(coupon) };
        let orders = replies.clone().filter_map(|(user, reply)| Some((*user, reply.order()?)));
        self.promised.note(coupon, edition.clone(), asked_at, orders);
        let replies = replies.map(|(_, reply)| reply);
        // The last reply is the newest: a call that sells the last unit goes on with SOLD_OUT. Repeats say nothing of
        // the stock, nor does a lost shard.
        let says_something = |reply: &&Reply| {
            !matches!(reply, Reply::Decided(ClaimOutcome::AlreadyClaimed(_)) | Reply::Lost)
        };
        match replies.clone().rfind(says_something) {
            Some(Reply::SoldOut) => {
                let refused = replies.filter(|reply| matches!(reply, Reply::SoldOut)).count();
                self.sold_out.note(coupon, edition, refused, asked_at);
            }
            Some(_) => self.sold_out.forget(coupon),
            None => {}
        }
    }

    /// Notes that Redis has answered on the connection at this time: all returns of units before then have been heard.
    pub fn heard(&self, asked_at: Instant) {
        self.listening.heard(asked_at);
    }

    /// Forgets a sale: a unit of it has come back.
    pub fn forget(&self, coupon: CouponId) {
        self.sold_out.forget(coupon);
        self.promised.forget(coupon);
    }

    /// Drops the sales that no claim has asked about for a while.
    pub fn forget_idle(&self) {
        self.sold_out.forget_idle();
        self.promised.forget_idle();
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

    /// Later answers about the same edition bring none of the dropped orders back.
    #[tokio::test(start_paused = true)]
    async fn forget_idle_drops_the_promised_orders_of_sales_that_were_not_asked_about_for_long() {
        bound_this_test();
        let redis = Redis::new("redis://127.0.0.1:1").expect("a URL");
        let memories = Memories::new(redis, Keys::new("t"), (MEMORY, MEMORY), Shutdown::default());
        let server = ServerId::named("a");
        // A time of 0 would be no time.
        advance(MEMORY).await;
        memories.begin_listening(server.clone(), Arc::new(AtomicBool::new(true)));
        let coupon = CouponId::compose(1, 1);
        let user = |id| UserId::new(id).expect("a positive number");
        let note = |id| {
            let edition = Edition { server: server.clone(), epoch: 7, additions: 3 };
            let order = (user(id), OrderId::new(1_000 * id).expect("a positive number"));
            memories.promised.note(coupon, edition, Instant::now(), [order].into_iter());
        };
        let told = || {
            memories.heard(Instant::now());
            [1, 2].map(|id| memories.promised.order_of(coupon, user(id)).is_some())
        };
        note(1);
        assert_eq!(told(), [true, false]);
        advance(MEMORY + limits::SOLD_OUT_KEPT).await;
        memories.forget_idle();
        note(2);
        assert_eq!(told(), [false, true]);
    }
}
