//! Remembers the orders that this process has told buyers, so that most repeats are answered without asking Redis.
//!
//! # Model
//!
//! A retry of a claim reaches the same process again most of the time. After each call of the script, the process notes
//! the orders of its buyers, and that this version of the sale ([`SaleVersion`]) held a moment ago. For
//! [`limits::SOLD_OUT_MEMORY`] it answers repeats from there. Half-way through, one repeat is sent to Redis all the
//! same, and its answer renews the memory for all. At `--durability postgres` nothing is remembered, because there the
//! script's reply confirms no claim.
//!
//! # Authority
//!
//! Redis decides. A buyer ceases to be one only when their unit is released, which makes another version of the sale.
//! As with sold-out sales (`claim/memory/sold_out.rs`), the process is told of added units, and doesn't use its memory
//! while it doesn't listen.
//!
//! # What is not promised
//!
//! A user whose unit has just been released may be told of the closed order until the message has arrived. A user who
//! is not remembered may still be a buyer: Redis is asked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::Instant;

use crate::base::limits;
use crate::claim::memory::listening::{Listening, SaleVersion, age};
use crate::store::ids::{CouponId, OrderId, UserId};

/// Parts of a sale's orders, each with a lock of its own.
const PARTS: usize = 16;

pub struct AcceptedOrders {
    /// Time for which an answer is used; zero turns the memory off.
    memory: Duration,
    listening: Arc<Listening>,
    /// Read by every claim, without a lock.
    sales: ArcSwap<HashMap<CouponId, Arc<Accepted>>>,
    /// Held during each change of `sales`.
    changing: Mutex<()>,
}

/// Orders of one version of a sale.
struct Accepted {
    version: SaleVersion,
    /// When Redis was last asked, in ms as in `listening`.
    asked_ms: AtomicU64,
    /// Set when a repeat has been sent to Redis to renew the memory.
    renewing: AtomicBool,
    /// By user.
    parts: [Mutex<HashMap<UserId, OrderId>>; PARTS],
    /// Orders in all parts.
    orders: AtomicUsize,
}

impl AcceptedOrders {
    pub fn new(memory: Duration, listening: Arc<Listening>) -> Self {
        Self { memory, listening, sales: ArcSwap::default(), changing: Mutex::default() }
    }

    /// The order of this buyer, if it can be told without asking Redis.
    pub fn order_of(&self, coupon: CouponId, user: UserId) -> Option<OrderId> {
        // Read before `sales`: `listening` gets a new connection only after all older memory has been forgotten.
        let now_ms = self.listening.ms(Instant::now());
        let hears = self.listening.hears(now_ms);
        let sales = self.sales.load();
        let sale = sales.get(&coupon).filter(|_| hears)?;
        let age = age(now_ms, &sale.asked_ms);
        let order = sale.part(user).get(&user).copied().filter(|_| age < self.memory)?;
        // One of these repeats asks Redis for all, before the memory runs out.
        let is_fresh = age < self.memory / 2 || sale.renewing.swap(true, Ordering::Relaxed);
        is_fresh.then_some(order)
    }

    /// Notes that Redis, asked at `asked_at`, has named these orders in this version of the sale.
    pub fn note(
        &self,
        coupon: CouponId,
        version: SaleVersion,
        asked_at: Instant,
        orders: impl Iterator<Item = (UserId, OrderId)>,
    ) {
        if self.memory.is_zero() || !self.listening.has_begun() {
            return;
        }
        let Some(sale) = self.sale(coupon, version, asked_at) else { return };
        sale.asked_ms.fetch_max(self.listening.ms(asked_at), Ordering::Relaxed);
        sale.renewing.store(false, Ordering::Relaxed);
        for (user, order) in orders {
            if sale.orders.load(Ordering::Relaxed) >= limits::ACCEPTED_ORDERS_MAX {
                return;
            }
            let before = sale.part(user).insert(user, order);
            sale.orders.fetch_add(usize::from(before.is_none()), Ordering::Relaxed);
        }
    }

    /// Forgets the orders of a sale, because units were added.
    pub fn forget(&self, coupon: CouponId) {
        if self.sales.load().contains_key(&coupon) {
            self.change(|sales| drop(sales.remove(&coupon)));
        }
    }

    pub fn forget_all(&self) {
        self.change(HashMap::clear);
    }

    /// Drops the sales about which Redis hasn't been asked for a while.
    pub fn forget_idle(&self) {
        let now_ms = self.listening.ms(Instant::now());
        let kept =
            |sale: &Accepted| age(now_ms, &sale.asked_ms) < self.memory + limits::SOLD_OUT_KEPT;
        if self.sales.load().values().any(|sale| !kept(sale)) {
            self.change(|sales| sales.retain(|_, sale| kept(sale)));
        }
    }

    /// The memory of this version; `None` if a later one is known, or units may have been added without notice.
    fn sale(
        &self,
        coupon: CouponId,
        version: SaleVersion,
        asked_at: Instant,
    ) -> Option<Arc<Accepted>> {
        if let Some(sale) = self.sales.load().get(&coupon).filter(|sale| sale.version == version) {
            return Some(sale.clone());
        }
        let mut remembered = None;
        self.change(|sales| {
            let there = sales.get(&coupon);
            if there.is_some_and(|there| there.version.is_later_than(&version))
                || !self.listening.heard_all(&version.server, asked_at)
            {
                return;
            }
            let same = there.filter(|there| there.version == version).cloned();
            let sale = same.unwrap_or_else(|| Arc::new(Accepted::new(version)));
            remembered = Some(sale.clone());
            sales.insert(coupon, sale);
        });
        remembered
    }

    /// Runs a change of the memory, one at a time.
    fn change(&self, change: impl FnOnce(&mut HashMap<CouponId, Arc<Accepted>>)) {
        let _one = self.changing.lock().expect("no holder of this lock panics");
        let mut sales = HashMap::clone(&self.sales.load());
        change(&mut sales);
        self.sales.store(Arc::new(sales));
    }
}

impl Accepted {
    fn new(version: SaleVersion) -> Self {
        Self {
            version,
            asked_ms: AtomicU64::new(0),
            renewing: AtomicBool::new(false),
            parts: std::array::from_fn(|_| Mutex::default()),
            orders: AtomicUsize::new(0),
        }
    }

    fn part(&self, user: UserId) -> MutexGuard<'_, HashMap<UserId, OrderId>> {
        let part = user.get().unsigned_abs() as usize % PARTS;
        self.parts[part].lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;
    use tokio::time::advance;

    use super::*;
    use crate::store::redis::ServerId;

    const MS: Duration = Duration::from_millis(1);
    const MEMORY: Duration = Duration::from_millis(400);

    fn user(id: i64) -> UserId {
        UserId::new(id).expect("a positive number")
    }

    fn coupon(number: i64) -> CouponId {
        CouponId::compose(number, 1)
    }

    fn version(epoch: i64, restocks: i64) -> SaleVersion {
        SaleVersion { server: ServerId::named("a"), epoch, restocks }
    }

    /// A memory of a process that listens.
    async fn accepted(memory: Duration) -> AcceptedOrders {
        let listening = Arc::new(Listening::default());
        // A time of 0 would look like no time at all.
        advance(MEMORY * 25).await;
        listening.begin(ServerId::named("a"), Arc::new(AtomicBool::new(true)));
        AcceptedOrders::new(memory, listening)
    }

    impl AcceptedOrders {
        /// Notes the orders of these users now: a thousand times their ids.
        fn note_now(&self, coupon: CouponId, version: SaleVersion, users: &[i64]) {
            self.note_all(coupon, version, Instant::now(), users.iter().copied());
        }

        fn note_all(
            &self,
            coupon: CouponId,
            version: SaleVersion,
            asked_at: Instant,
            users: impl Iterator<Item = i64>,
        ) {
            let order = |id: i64| OrderId::new(1_000 * id).expect("a positive number");
            self.note(coupon, version, asked_at, users.map(|id| (user(id), order(id))));
        }

        /// Users among the first 40 whose order is told.
        fn told(&self, coupon: CouponId) -> Vec<i64> {
            self.listening.heard(Instant::now());
            let told = |id: i64| self.order_of(coupon, user(id)).map(OrderId::get);
            (1..=40).filter(|id| told(*id) == Some(1_000 * id)).collect()
        }

        fn coupons(&self) -> Vec<CouponId> {
            let mut coupons: Vec<CouponId> = self.sales.load().keys().copied().collect();
            coupons.sort();
            coupons
        }
    }

    #[tokio::test(start_paused = true)]
    async fn order_of_is_believed_for_a_time_and_renewed_by_one_repeat() {
        bound_this_test();
        let accepted = accepted(MEMORY).await;
        let first = Instant::now();
        accepted.note_now(coupon(1), version(7, 3), &[1, 16, 33]);
        advance(MEMORY / 2 - MS).await;
        assert_eq!(accepted.told(coupon(1)), [1, 16, 33]);
        assert!(accepted.told(coupon(2)).is_empty());
        advance(MS).await;
        assert_eq!(accepted.told(coupon(1)), [16, 33], "the first repeat asks Redis");
        assert_eq!(accepted.told(coupon(1)), [1, 16, 33]);

        accepted.note_now(coupon(1), version(7, 3), &[2]);
        accepted.note_all(coupon(1), version(7, 3), first, [3].into_iter());
        advance(MEMORY / 2 - MS).await;
        assert_eq!(accepted.told(coupon(1)), [1, 2, 3, 16, 33], "renewed");
        advance(MS).await;
        assert_eq!(accepted.told(coupon(1)), [2, 3, 16, 33], "the first repeat asks Redis");
        advance(MEMORY / 2 - MS).await;
        assert_eq!(accepted.told(coupon(1)), [1, 2, 3, 16, 33]);
        advance(MS).await;
        assert!(accepted.told(coupon(1)).is_empty(), "nothing is believed for longer");
    }

    #[tokio::test(start_paused = true)]
    async fn note_keeps_the_latest_edition_and_nothing_that_was_not_heard() {
        bound_this_test();
        let accepted = accepted(MEMORY).await;
        accepted.note_now(coupon(1), version(7, 3), &[1]);
        accepted.note_now(coupon(1), version(7, 2), &[2]);
        assert_eq!(accepted.told(coupon(1)), [1], "an older version");
        accepted.note_now(coupon(1), version(7, 4), &[3]);
        assert_eq!(accepted.told(coupon(1)), [3], "a unit has come back");
        accepted.note_now(coupon(1), version(6, 9), &[4]);
        assert_eq!(accepted.told(coupon(1)), [4], "another epoch");

        let before = Instant::now();
        advance(MS).await;
        accepted.listening.begin(ServerId::named("a"), Arc::new(AtomicBool::new(true)));
        accepted.note_all(coupon(2), version(7, 3), before, [1].into_iter());
        let elsewhere = SaleVersion { server: ServerId::named("b"), ..version(7, 3) };
        accepted.note_now(coupon(2), elsewhere, &[1]);
        assert_eq!(accepted.coupons(), [coupon(1)]);
        accepted.note_now(coupon(2), version(7, 3), &[1]);
        accepted.note_all(coupon(2), version(7, 3), before, [2].into_iter());
        assert_eq!(accepted.told(coupon(2)), [1, 2], "no unit has come back in between");

        accepted.listening.end();
        accepted.note_now(coupon(1), version(6, 9), &[5]);
        assert!(accepted.told(coupon(1)).is_empty(), "the process doesn't listen");
        accepted.listening.begin(ServerId::named("a"), Arc::new(AtomicBool::new(true)));
        assert_eq!(accepted.told(coupon(1)), [4]);
    }

    #[tokio::test(start_paused = true)]
    async fn note_without_a_memory_keeps_nothing() {
        bound_this_test();
        let accepted = accepted(Duration::ZERO).await;
        accepted.note_now(coupon(1), version(7, 3), &[1]);
        assert!(accepted.coupons().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn note_keeps_so_many_orders_of_a_sale_and_no_more() {
        bound_this_test();
        let accepted = accepted(MEMORY).await;
        let max = i64::try_from(limits::ACCEPTED_ORDERS_MAX).expect("it is small");
        let many = 1_000 + max - 2;
        accepted.note_all(coupon(1), version(7, 3), Instant::now(), 1_000..many);
        accepted.note_now(coupon(1), version(7, 3), &[1]);
        accepted.note_now(coupon(1), version(7, 3), &[1, 1]);
        accepted.note_now(coupon(1), version(7, 3), &[2, 3]);
        assert_eq!(accepted.told(coupon(1)), [1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn forget_takes_one_sale_and_forget_all_takes_each() {
        bound_this_test();
        let accepted = accepted(MEMORY).await;
        for number in 1..=3 {
            accepted.note_now(coupon(number), version(7, 3), &[1]);
        }
        accepted.forget(coupon(2));
        accepted.forget(coupon(4));
        assert_eq!(accepted.coupons(), [coupon(1), coupon(3)]);
        accepted.forget_all();
        assert!(accepted.coupons().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn forget_idle_drops_sales_that_were_not_asked_about_for_long() {
        bound_this_test();
        let accepted = accepted(MEMORY).await;
        accepted.note_now(coupon(1), version(7, 3), &[1]);
        advance(MS * 10).await;
        accepted.note_now(coupon(2), version(7, 3), &[1]);
        advance(MEMORY + limits::SOLD_OUT_KEPT - MS * 11).await;
        accepted.forget_idle();
        assert_eq!(accepted.coupons(), [coupon(1), coupon(2)]);
        advance(MS).await;
        accepted.forget_idle();
        assert_eq!(accepted.coupons(), [coupon(2)]);
    }
}
