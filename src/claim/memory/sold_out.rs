//! Remembers sold-out sales, so that 99 of 100 claims of a crowd are refused without asking Redis.
//!
//! # Model
//!
//! When the script replies "sold out", the process refuses claims itself for [`limits::SOLD_OUT_MEMORY`]. Half-way
//! through, one claim is sent to Redis all the same. The same reply renews the memory for all users; any other reply
//! ends it.
//!
//! A buyer who repeats a claim has to be told their order, so the buyers of the sale are read into a filter, off the
//! claim path. Redis is asked until the filter is complete, and after that for each user whom the filter takes for a
//! buyer. The filter recognises every buyer. It also takes a share of [`limits::SOLD_OUT_FALSE_BUYERS`] of the other
//! users for buyers, each of whom costs a question.
//!
//! # Authority
//!
//! Redis decides. A filter holds for one version of the sale ([`SaleVersion`]): one run of the server, one epoch, and
//! one count of restocks, which the script returns with "sold out". As long as Redis has not gone back in time and no
//! unit has been added, no further user can have become a buyer. All three are checked again after the buyers have been
//! read, so a complete filter has all buyers.
//!
//! Added units are announced on a channel (`claim/memory/listener.rs`), which ends the memory of their sale. So the
//! memory isn't used by a process that doesn't listen there: before it has subscribed, after its connection has ended,
//! when the connection leads to another Redis than the claims do, and when Redis has not answered on it for
//! [`limits::RETURNS_HEARD_MAX`]. Replies to calls from before the subscription are not remembered, because units may
//! have been added without notice since.
//!
//! # Cost
//!
//! A read is paid for in advance: it begins when Redis has been asked about this version once for every
//! [`limits::SOLD_OUT_BUYERS_PER_QUESTION`] buyers, and reading so many costs about as much as a question. The read
//! stops when its version ends. So a coupon has one reader at a time, and however often units are added, all reading
//! together costs at most about as much as the questions.
//!
//! For example, take 1.5 million buyers, and a cancelled order every 0.5 s. A version has to see 46,875 questions
//! before its buyers are read, so at fewer than 93,750 claims a second nothing is read at all, and Redis answers each
//! claim. Once no more units are added, the buyers are read after 46,875 claims.
//!
//! # What each failure does
//!
//! * Redis is away: the memory isn't used, and claims are answered 503 like all others.
//! * A connection breaks without a sign: the process isn't told of added units for [`limits::RETURNS_HEARD_MAX`] or
//!   [`limits::SOLD_OUT_MEMORY`], whichever is shorter. For that time a user may be told "sold out" although a unit is
//!   there, and so may the buyer of such a unit when they ask this process again. The memory never accepts a claim.
//!
//! # What is not promised
//!
//! A pause, the end of the window or a new epoch is seen late: until then a sold-out sale stays "sold out". A message
//! may arrive after a claim that was sent later, because both are on their way for a moment.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use fastbloom::BloomFilter;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::claim::memory::listening::{Listening, SaleVersion, age};
use crate::coupon::buyers;
use crate::store::Failure;
use crate::store::ids::{CouponId, UserId};
use crate::store::keys::Keys;
use crate::store::redis::Redis;

pub struct SoldOutSales {
    redis: Redis,
    keys: Keys,
    /// Time for which a reply is used; zero turns the memory off.
    memory: Duration,
    /// Read by every claim, without a lock.
    sales: ArcSwap<HashMap<CouponId, Arc<SoldOut>>>,
    /// Whether this process is told of added units.
    listening: Arc<Listening>,
    /// Held during each change of `sales`.
    changing: Mutex<()>,
    shutdown: Shutdown,
}

/// Memory of one version of a sale.
struct SoldOut {
    version: SaleVersion,
    /// When Redis was last asked, in ms as in `listening`.
    asked_ms: AtomicU64,
    /// Set when a claim has been sent to Redis to renew the memory.
    renewing: AtomicBool,
    /// One permit for each claim that Redis has refused; the reader of the buyers takes them as its price.
    questions: Semaphore,
    /// Possible buyers; empty until the buyers have been read.
    buyers: OnceLock<BloomFilter>,
    /// Cancelled when this version is forgotten; ends the reader of its buyers.
    forgotten: CancellationToken,
}

impl SoldOutSales {
    pub fn new(
        redis: Redis,
        keys: Keys,
        memory: Duration,
        listening: Arc<Listening>,
        shutdown: Shutdown,
    ) -> Self {
        let sales = ArcSwap::default();
        let changing = Mutex::default();
        Self { redis, keys, memory, sales, listening, changing, shutdown }
    }

    fn is_on(&self) -> bool {
        !self.memory.is_zero()
    }

    /// Whether `user` can be told "sold out" without asking Redis.
    pub fn refuses(&self, coupon: CouponId, user: UserId) -> bool {
        // Read before `sales`: `listening` gets a new connection only after all older memory has been forgotten.
        let now_ms = self.listening.ms(Instant::now());
        let is_listening = self.listening.hears(now_ms);
        let sales = self.sales.load();
        let Some(sale) = sales.get(&coupon).filter(|_| is_listening) else {
            return false;
        };
        let age = age(now_ms, &sale.asked_ms);
        let may_be_buyer = sale.buyers.get().is_none_or(|buyers| buyers.contains(&user.get()));
        if age >= self.memory || may_be_buyer {
            return false;
        }
        // One of these claims asks Redis for all, before the memory runs out.
        age < self.memory / 2 || sale.renewing.swap(true, Ordering::Relaxed)
    }

    /// Notes that Redis, asked at `asked_at`, has refused so many claims because this version of the sale is sold out.
    pub fn note(
        self: &Arc<Self>,
        coupon: CouponId,
        version: SaleVersion,
        refused: usize,
        asked_at: Instant,
    ) {
        if !self.is_on() || !self.listening.has_begun() {
            return;
        }
        let asked_ms = self.listening.ms(asked_at);
        if let Some(sale) = self.sales.load().get(&coupon).filter(|sale| sale.version == version) {
            sale.asked_ms.fetch_max(asked_ms, Ordering::Relaxed);
            sale.renewing.store(false, Ordering::Relaxed);
            sale.questions.add_permits(refused);
            return;
        }
        let sale = Arc::new(SoldOut {
            version,
            asked_ms: asked_ms.into(),
            renewing: AtomicBool::new(false),
            questions: Semaphore::new(refused),
            buyers: OnceLock::new(),
            forgotten: CancellationToken::new(),
        });
        if self.remember(coupon, &sale, asked_at) {
            let memory = self.clone();
            self.shutdown.spawn(async move { memory.learn_buyers(coupon, &sale).await });
        }
    }

    /// Forgets a sale, because Redis has replied something else, or units were added.
    pub fn forget(&self, coupon: CouponId) {
        if self.sales.load().contains_key(&coupon) {
            self.change(|sales| sales.remove(&coupon).is_some());
        }
    }

    pub fn forget_all(&self) {
        self.change(|sales| {
            sales.clear();
            true
        });
    }

    /// Drops the sales about which Redis hasn't been asked for a while.
    pub fn forget_idle(&self) {
        let now_ms = self.listening.ms(Instant::now());
        let kept =
            |sale: &SoldOut| age(now_ms, &sale.asked_ms) < self.memory + limits::SOLD_OUT_KEPT;
        if self.sales.load().values().any(|sale| !kept(sale)) {
            self.change(|sales| {
                sales.retain(|_, sale| kept(sale));
                true
            });
        }
    }

    /// False if another call was faster, or if units may have been added without notice since the question.
    fn remember(&self, coupon: CouponId, sale: &Arc<SoldOut>, asked_at: Instant) -> bool {
        self.change(|sales| {
            let listens = self.listening.heard_all(&sale.version.server, asked_at);
            if !listens || sales.get(&coupon).is_some_and(|there| there.version == sale.version) {
                return false;
            }
            sales.insert(coupon, sale.clone());
            true
        })
    }

    /// Runs a change of the memory, one at a time. The readers of dropped versions end.
    fn change(&self, change: impl FnOnce(&mut HashMap<CouponId, Arc<SoldOut>>) -> bool) -> bool {
        let _one = self.changing.lock().expect("no holder of this lock panics");
        let before = self.sales.load_full();
        let mut sales = HashMap::clone(&before);
        let changed = change(&mut sales);
        if changed {
            for (coupon, sale) in before.iter() {
                if !sales.get(coupon).is_some_and(|kept| Arc::ptr_eq(kept, sale)) {
                    sale.forgotten.cancel();
                }
            }
            self.sales.store(Arc::new(sales));
        }
        changed
    }

    /// Reads the buyers of this version once they are paid for. Until then Redis goes on being asked.
    async fn learn_buyers(&self, coupon: CouponId, sale: &SoldOut) {
        let learned = tokio::select! {
            biased;
            () = self.shutdown.stop_token().cancelled() => return,
            () = sale.forgotten.cancelled() => return,
            learned = self.read_buyers(coupon, sale) => learned,
        };
        match learned {
            Ok(Some(buyers)) => {
                let _ = sale.buyers.set(buyers);
            }
            // The sale has another version by now, is too large, or isn't whole. Without a filter Redis is asked for
            // every user, and the buyers are not read again.
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(%coupon, %error, "the buyers of a sold-out sale could not be read");
                self.forget(coupon);
            }
        }
    }

    async fn read_buyers(
        &self,
        coupon: CouponId,
        sale: &SoldOut,
    ) -> Result<Option<BloomFilter>, Failure> {
        let version = &sale.version;
        if *self.redis.link().await?.server() != version.server {
            return Ok(None);
        }
        // There are as many buyers as units, or fewer if Redis has lost some.
        let mut command = redis::cmd("HGET");
        command.arg(self.keys.coupon(coupon)).arg("total");
        let total: usize = self.redis.query::<Option<usize>>(&command).await?.unwrap_or(0);
        if total > limits::SOLD_OUT_BUYERS_MAX {
            return Ok(None);
        }
        sale.paid_for(total).await;
        let filter = BloomFilter::with_false_pos(limits::SOLD_OUT_FALSE_BUYERS);
        let mut filter = filter.expected_items(total.max(1));
        let mut pages = buyers::Pages::begin(&self.redis, &self.keys, coupon).await?;
        let mut found = 0;
        while let Some(page) = pages.next().await? {
            found += page.len();
            for (user, _) in page {
                filter.insert(&user.get());
            }
        }
        let mut command = redis::cmd("HMGET");
        command.arg(self.keys.coupon(coupon)).arg("stock").arg("epoch").arg("restocks");
        let link = self.redis.link().await?;
        let (stock, epoch, restocks): (Option<i64>, Option<i64>, Option<i64>) =
            link.query(&command).await?;
        let same = *link.server() == version.server
            && epoch == Some(version.epoch)
            && restocks.unwrap_or(0) == version.restocks;
        Ok(Some(filter).filter(|_| same && stock == Some(0) && found >= total))
    }
}

impl SoldOut {
    /// Waits until Redis has been asked so often that reading so many buyers costs no more than the questions did.
    async fn paid_for(&self, buyers: usize) {
        let price = buyers / limits::SOLD_OUT_BUYERS_PER_QUESTION;
        let price = u32::try_from(price).expect("a sale with so many buyers is not read");
        let paid = self.questions.acquire_many(price).await;
        paid.expect("it is never closed").forget();
    }
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;
    use tokio::time::{advance, timeout};

    use super::*;
    use crate::store::redis::ServerId;

    const MS: Duration = Duration::from_millis(1);
    const MEMORY: Duration = Duration::from_millis(400);

    fn coupon(number: i64) -> CouponId {
        CouponId::compose(number, 1)
    }

    fn version(restocks: i64) -> SaleVersion {
        SaleVersion { server: ServerId::named("a"), epoch: 7, restocks }
    }

    fn begin(listening: &Listening) {
        listening.begin(ServerId::named("a"), Arc::new(AtomicBool::new(true)));
    }

    /// A memory of a process that listens, and that no longer reads buyers.
    async fn sold_out(memory: Duration) -> Arc<SoldOutSales> {
        let listening = Arc::new(Listening::default());
        // A time of 0 would look like no time at all.
        advance(MEMORY * 25).await;
        begin(&listening);
        let shutdown = Shutdown::default();
        assert!(shutdown.stop(MS).await);
        let redis = Redis::new("redis://127.0.0.1:1").expect("a URL");
        Arc::new(SoldOutSales::new(redis, Keys::new("t"), memory, listening, shutdown))
    }

    impl SoldOutSales {
        fn note_now(self: &Arc<Self>, coupon: CouponId, version: SaleVersion, refused: usize) {
            self.note(coupon, version, refused, Instant::now());
        }

        fn sale(&self, coupon: CouponId) -> Arc<SoldOut> {
            self.sales.load()[&coupon].clone()
        }

        /// As if the buyers had been read: user 1 is the only one.
        fn learn(&self, coupon: CouponId) {
            let mut filter =
                BloomFilter::with_false_pos(limits::SOLD_OUT_FALSE_BUYERS).expected_items(1_000);
            filter.insert(&1_i64);
            self.sale(coupon).buyers.set(filter).expect("they are read once");
        }

        /// For each of these users, whether the memory refuses a claim.
        fn refused<const N: usize>(&self, coupon: CouponId, users: [i64; N]) -> [bool; N] {
            self.listening.heard(Instant::now());
            users.map(|id| self.refuses(coupon, UserId::new(id).expect("a positive number")))
        }

        fn coupons(&self) -> Vec<CouponId> {
            let mut coupons: Vec<CouponId> = self.sales.load().keys().copied().collect();
            coupons.sort();
            coupons
        }
    }

    #[tokio::test(start_paused = true)]
    async fn refuses_strangers_for_a_time_and_is_renewed_by_one_claim() {
        bound_this_test();
        let sales = sold_out(MEMORY).await;
        let first = Instant::now();
        sales.note_now(coupon(1), version(3), 1);
        assert_eq!(sales.refused(coupon(1), [2, 3]), [false, false], "any user may be a buyer");
        sales.learn(coupon(1));
        advance(MEMORY / 2 - MS).await;
        assert_eq!(sales.refused(coupon(1), [1, 2, 3]), [false, true, true]);
        assert_eq!(sales.refused(coupon(2), [2]), [false], "another sale");
        advance(MS).await;
        assert_eq!(sales.refused(coupon(1), [1, 2, 3, 2]), [false, false, true, true], "one asks");

        sales.note_now(coupon(1), version(3), 1);
        sales.note(coupon(1), version(3), 1, first);
        advance(MEMORY / 2 - MS).await;
        assert_eq!(sales.refused(coupon(1), [1, 2, 3]), [false, true, true], "renewed");
        advance(MS).await;
        assert_eq!(sales.refused(coupon(1), [2, 3]), [false, true], "one asks");
        advance(MEMORY / 2 - MS).await;
        assert_eq!(sales.refused(coupon(1), [2, 3]), [true, true]);
        advance(MS).await;
        assert_eq!(sales.refused(coupon(1), [2, 3]), [false, false], "not believed for longer");
    }

    #[tokio::test(start_paused = true)]
    async fn refuses_no_user_while_the_process_does_not_listen() {
        bound_this_test();
        let sales = sold_out(MEMORY).await;
        sales.note_now(coupon(1), version(3), 5);
        sales.learn(coupon(1));
        assert_eq!(sales.refused(coupon(1), [2]), [true]);
        sales.listening.end();
        assert_eq!(sales.refused(coupon(1), [2]), [false]);
        let readers = sales.shutdown.tracker().len();
        sales.note_now(coupon(1), version(3), 2);
        sales.note_now(coupon(2), version(3), 2);
        begin(&sales.listening);
        sales.note(coupon(2), version(3), 2, Instant::now() - MS);
        let elsewhere = SaleVersion { server: ServerId::named("b"), ..version(3) };
        sales.note_now(coupon(2), elsewhere, 2);
        assert_eq!(sales.coupons(), [coupon(1)], "what was not heard is not noted");
        assert_eq!(sales.sale(coupon(1)).questions.available_permits(), 5);
        assert_eq!(sales.shutdown.tracker().len(), readers, "and has no reader");
    }

    #[tokio::test(start_paused = true)]
    async fn note_begins_a_reader_for_each_edition_and_ends_that_of_the_one_before() {
        bound_this_test();
        let sales = sold_out(MEMORY).await;
        let readers = || sales.shutdown.tracker().len();
        let before = readers();
        sales.note_now(coupon(1), version(3), 5);
        sales.note_now(coupon(2), version(3), 5);
        assert_eq!(readers() - before, 2);
        let (first, other) = (sales.sale(coupon(1)), sales.sale(coupon(2)));
        sales.note_now(coupon(1), version(3), 2);
        assert_eq!(first.questions.available_permits(), 7, "questions are counted");
        assert_eq!(readers() - before, 2);
        assert!(!sales.remember(coupon(1), &first, Instant::now()), "it is remembered");
        assert!(!first.forgotten.is_cancelled());

        sales.learn(coupon(1));
        sales.note_now(coupon(1), version(4), 5);
        assert_eq!(readers() - before, 3);
        assert_eq!(sales.refused(coupon(1), [2]), [false], "its buyers are others");
        assert_eq!(sales.sale(coupon(1)).version, version(4));
        let ended = || (first.forgotten.is_cancelled(), other.forgotten.is_cancelled());
        assert_eq!(ended(), (true, false));
        sales.forget(coupon(2));
        assert_eq!(ended(), (true, true));
    }

    #[tokio::test(start_paused = true)]
    async fn note_without_a_memory_keeps_nothing() {
        bound_this_test();
        let sales = sold_out(Duration::ZERO).await;
        sales.note_now(coupon(1), version(3), 1);
        assert!(sales.coupons().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn forget_takes_one_sale_and_forget_all_takes_each() {
        bound_this_test();
        let sales = sold_out(MEMORY).await;
        for number in 1..=3 {
            sales.note_now(coupon(number), version(3), 1);
        }
        let third = sales.sale(coupon(3));
        sales.forget(coupon(2));
        sales.forget(coupon(4));
        assert_eq!(sales.coupons(), [coupon(1), coupon(3)]);
        assert!(!third.forgotten.is_cancelled());
        sales.forget_all();
        assert!(sales.coupons().is_empty());
        assert!(third.forgotten.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn forget_idle_drops_sales_that_were_not_asked_about_for_long() {
        bound_this_test();
        let sales = sold_out(MEMORY).await;
        sales.note_now(coupon(1), version(3), 1);
        advance(MS * 10).await;
        sales.note_now(coupon(2), version(3), 1);
        advance(MEMORY + limits::SOLD_OUT_KEPT - MS * 11).await;
        sales.forget_idle();
        assert_eq!(sales.coupons(), [coupon(1), coupon(2)]);
        advance(MS).await;
        sales.forget_idle();
        assert_eq!(sales.coupons(), [coupon(2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_is_paid_for_by_one_question_for_so_many_buyers() {
        bound_this_test();
        let sales = sold_out(MEMORY).await;
        let each = limits::SOLD_OUT_BUYERS_PER_QUESTION;
        for (questions, buyers, is_paid, left) in [
            (0, 0, true, 0),
            (0, each - 1, true, 0),
            (0, each, false, 0),
            (1, each, true, 0),
            (3, 2 * each + 1, true, 1),
            (2, 3 * each, false, 2),
        ] {
            sales.forget_all();
            sales.note_now(coupon(1), version(3), questions);
            let sale = sales.sale(coupon(1));
            let paid = timeout(MS, sale.paid_for(buyers)).await.is_ok();
            let permits = sale.questions.available_permits();
            assert_eq!((paid, permits), (is_paid, left), "{questions} for {buyers}");
        }
    }
}
