//! Memory of the orders that this process has told buyers, so that most repeats are answered without asking Redis.
//!
//! # Model
//!
//! A retry of a claim reaches the same process again most of the time. After each call of the script, the process
//! notes the orders of its buyers, and that this edition of the sale held a moment ago. For `--sold-out-memory-ms` a
//! repeat is answered from there. Half-way through, one repeat is sent to Redis all the same, and its answer renews
//! the belief for all.
//!
//! # Authority
//!
//! Redis decides. A buyer ceases to be one only when their unit comes back, which counts an addition: another edition
//! ([`Edition`]). As in the memory of sold-out sales (`sale/claim/memory/sold_out.rs`), a unit that comes back is heard of,
//! and a process that doesn't listen believes nothing.
//!
//! # What is not promised
//!
//! A user whose unit has just come back may be told of the closed order, until the message has been heard. A user who
//! is not remembered is no less a buyer: Redis is asked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::Instant;

use crate::base::limits;
use crate::sale::claim::memory::listening::{Edition, Listening, age};
use crate::sale::ids::{CouponId, OrderId, UserId};

/// Parts of a sale's orders, each with a lock of its own.
const PARTS: usize = 16;

/// Remembers orders.
pub struct PromisedOrders {
    /// Time for which an answer is believed; zero for not at all.
    memory: Duration,
    listening: Arc<Listening>,
    /// Read by every claim, without a lock.
    sales: ArcSwap<HashMap<CouponId, Arc<Promised>>>,
    /// Lock of each change of `sales`.
    changing: Mutex<()>,
}

/// Orders of one edition of a sale.
struct Promised {
    edition: Edition,
    /// Time of the last answer of Redis, in ms as `listening` has them.
    asked_ms: AtomicU64,
    /// Set when a repeat has been sent to Redis to renew the belief.
    renewing: AtomicBool,
    /// By user.
    parts: [Mutex<HashMap<UserId, OrderId>>; PARTS],
    /// Orders in all parts.
    orders: AtomicUsize,
}

impl PromisedOrders {
    /// A memory without orders.
    pub fn new(memory: Duration, listening: Arc<Listening>) -> Self {
        Self { memory, listening, sales: ArcSwap::default(), changing: Mutex::default() }
    }

    /// The order of this buyer, if it can be told without asking Redis.
    pub fn order_of(&self, coupon: CouponId, user: UserId) -> Option<OrderId> {
        // Read before `sales`: a new connection stands there only after all older memory is forgotten.
        let now_ms = self.listening.ms(Instant::now());
        let hears = self.listening.hears(now_ms);
        let sales = self.sales.load();
        let sale = sales.get(&coupon).filter(|_| hears)?;
        let age = age(now_ms, &sale.asked_ms);
        let order = sale.part(user).get(&user).copied().filter(|_| age < self.memory)?;
        // One of these repeats asks for all, before the belief ends.
        let is_fresh = age < self.memory / 2 || sale.renewing.swap(true, Ordering::Relaxed);
        is_fresh.then_some(order)
    }

    /// Notes that Redis, asked at `asked_at`, has named these orders in this edition of the sale.
    pub fn note(
        &self,
        coupon: CouponId,
        edition: Edition,
        asked_at: Instant,
        orders: impl Iterator<Item = (UserId, OrderId)>,
    ) {
        if self.memory.is_zero() || !self.listening.has_begun() {
            return;
        }
        let Some(sale) = self.sale(coupon, edition, asked_at) else { return };
        sale.asked_ms.fetch_max(self.listening.ms(asked_at), Ordering::Relaxed);
        sale.renewing.store(false, Ordering::Relaxed);
        for (user, order) in orders {
            if sale.orders.load(Ordering::Relaxed) >= limits::PROMISED_ORDERS_MAX {
                return;
            }
            let before = sale.part(user).insert(user, order);
            sale.orders.fetch_add(usize::from(before.is_none()), Ordering::Relaxed);
        }
    }

    /// Forgets the orders of a sale: a unit of it has come back.
    pub fn forget(&self, coupon: CouponId) {
        if self.sales.load().contains_key(&coupon) {
            self.change(|sales| drop(sales.remove(&coupon)));
        }
    }

    /// Forgets all orders.
    pub fn forget_all(&self) {
        self.change(HashMap::clear);
    }

    /// Drops the sales about which Redis has not been asked for a while.
    pub fn forget_idle(&self) {
        let now_ms = self.listening.ms(Instant::now());
        let kept =
            |sale: &Promised| age(now_ms, &sale.asked_ms) < self.memory + limits::SOLD_OUT_KEPT;
        if self.sales.load().values().any(|sale| !kept(sale)) {
            self.change(|sales| sales.retain(|_, sale| kept(sale)));
        }
    }

    /// The memory of this edition; `None` if a later one is known, or units may have come back unheard.
    fn sale(&self, coupon: CouponId, edition: Edition, asked_at: Instant) -> Option<Arc<Promised>> {
        if let Some(sale) = self.sales.load().get(&coupon).filter(|sale| sale.edition == edition) {
            return Some(sale.clone());
        }
        let mut remembered = None;
        self.change(|sales| {
            let there = sales.get(&coupon);
            if there.is_some_and(|there| there.edition.is_later_than(&edition))
                || !self.listening.heard_all(&edition.server, asked_at)
            {
                return;
            }
            let same = there.filter(|there| there.edition == edition).cloned();
            let sale = same.unwrap_or_else(|| Arc::new(Promised::new(edition)));
            remembered = Some(sale.clone());
            sales.insert(coupon, sale);
        });
        remembered
    }

    /// Runs a change of the memory, one at a time.
    fn change(&self, change: impl FnOnce(&mut HashMap<CouponId, Arc<Promised>>)) {
        let _one = self.changing.lock().expect("no holder of this lock panics");
        let mut sales = HashMap::clone(&self.sales.load());
        change(&mut sales);
        self.sales.store(Arc::new(sales));
    }
}

impl Promised {
    fn new(edition: Edition) -> Self {
        Self {
            edition,
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
