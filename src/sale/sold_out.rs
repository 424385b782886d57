//! What a process remembers of sales that are sold out, so that 99 of 100 claims of a crowd are refused
//! without asking Redis.
//!
//! # Model
//!
//! When the script says SOLD_OUT, that is believed for `--sold-out-memory-ms`. Half-way through, one claim is
//! sent to Redis all the same, and its answer renews the belief for everybody; any other answer ends it.
//!
//! A buyer who asks again has to be told their order, so a sale's buyers are read once, off the claim path,
//! into a filter. Until it stands, and for everybody whom it takes for a buyer, Redis is asked. It never takes a
//! buyer for somebody else; the other way round it is wrong [`limits::SOLD_OUT_FALSE_BUYERS`] of the time, which
//! costs a question.
//!
//! # Authority
//!
//! Redis. The filter holds for one life of the server, one epoch, and one count of `returns`, which the script
//! tells with SOLD_OUT: as long as Redis has not gone back in time and no unit has come back, nobody new can
//! have become a buyer. All three are looked at again after the buyers have been read, so a filter that
//! stands has everybody.
//!
//! # What each failure does
//!
//! * Redis away: the belief is not renewed and ends by itself; then claims are 503 like all others.
//! * Units come back: whoever brings them tells it (`sale/returns.rs`), and the belief ends. If that is not heard,
//!   somebody who could have had one may be told "sold out" for at most the time of the belief. Never the other way
//!   round: nobody is promised anything from memory.
//!
//! # What is not promised
//!
//! That a pause, the end of the window or a new epoch is seen at once: a sale that is sold out stays "sold out"
//! for as long.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use fastbloom::BloomFilter;
use tokio::time::Instant;

use super::ids::{CouponId, UserId};
use super::keys::Keys;
use super::{Failure, buyers};
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::kit::redis::{Redis, ServerId};

/// Remembers sold-out sales.
pub struct SoldOutSales {
    redis: Redis,
    keys: Keys,
    /// How long an answer is believed; zero for not at all.
    memory: Duration,
    /// Read by every claim, without a lock.
    sales: ArcSwap<HashMap<CouponId, Arc<SoldOut>>>,
    /// Held by whoever changes `sales`.
    changing: Mutex<()>,
    /// What the times below are counted from.
    started: Instant,
    /// Owns the readers of buyers.
    shutdown: Shutdown,
}

/// What a filter holds for: while none of this changes, nobody new becomes a buyer of a sold-out sale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edition {
    /// A restart may have brought older data back.
    pub server: ServerId,
    /// As the script was told.
    pub epoch: i64,
    /// How often units had come back.
    pub returns: i64,
}

struct SoldOut {
    edition: Edition,
    /// When Redis was asked last, in ms since `started`.
    asked_ms: AtomicU64,
    /// Set when a claim has been sent to Redis to renew the belief.
    renewing: AtomicBool,
    /// Who may be a buyer; empty until the buyers have been read.
    buyers: OnceLock<BloomFilter>,
}

impl SoldOutSales {
    /// Remembers nothing yet.
    pub fn new(redis: Redis, keys: Keys, memory: Duration, shutdown: Shutdown) -> Self {
        Self {
            redis,
            keys,
            memory,
            sales: ArcSwap::default(),
            changing: Mutex::default(),
            started: Instant::now(),
            shutdown,
        }
    }

    /// Whether `user` can be told "sold out" without asking Redis.
    pub fn refuses(&self, coupon: CouponId, user: UserId) -> bool {
        let sales = self.sales.load();
        let Some(sale) = sales.get(&coupon) else {
            return false;
        };
        let age = self.ms_ago(sale.asked_ms.load(Ordering::Relaxed));
        let may_be_buyer = sale.buyers.get().is_none_or(|buyers| buyers.contains(&user.get()));
        if age >= self.memory || may_be_buyer {
            return false;
        }
        // One of them asks for all, before the belief ends.
        age < self.memory / 2 || sale.renewing.swap(true, Ordering::Relaxed)
    }

    /// Redis, asked at `asked_at`, has said that this edition of the sale is sold out.
    pub fn note(self: &Arc<Self>, coupon: CouponId, edition: Edition, asked_at: Instant) {
        if self.memory.is_zero() {
            return;
        }
        let asked_ms = self.ms(asked_at);
        if let Some(sale) = self.sales.load().get(&coupon).filter(|sale| sale.edition == edition) {
            sale.asked_ms.fetch_max(asked_ms, Ordering::Relaxed);
            sale.renewing.store(false, Ordering::Relaxed);
            return;
        }
        let sale = Arc::new(SoldOut {
            edition,
            asked_ms: asked_ms.into(),
            renewing: AtomicBool::new(false),
            buyers: OnceLock::new(),
        });
        if self.remember(coupon, &sale) {
            let memory = self.clone();
            self.shutdown.spawn(async move { memory.learn_buyers(coupon, &sale).await });
        }
    }

    /// Redis has said something else about this sale.
    pub fn forget(&self, coupon: CouponId) {
        if self.sales.load().contains_key(&coupon) {
            self.change(|sales| sales.remove(&coupon).is_some());
        }
    }

    /// Units may have come back anywhere.
    pub fn forget_all(&self) {
        self.change(|sales| {
            sales.clear();
            true
        });
    }

    /// Drops what nobody has asked about for a while.
    pub fn forget_idle(&self) {
        let kept = |sale: &SoldOut| {
            self.ms_ago(sale.asked_ms.load(Ordering::Relaxed)) < self.memory + limits::SOLD_OUT_KEPT
        };
        if self.sales.load().values().any(|sale| !kept(sale)) {
            self.change(|sales| {
                sales.retain(|_, sale| kept(sale));
                true
            });
        }
    }

    /// False if somebody was faster.
    fn remember(&self, coupon: CouponId, sale: &Arc<SoldOut>) -> bool {
        self.change(|sales| {
            if sales.get(&coupon).is_some_and(|there| there.edition == sale.edition) {
                return false;
            }
            sales.insert(coupon, sale.clone());
            true
        })
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<CouponId, Arc<SoldOut>>) -> bool) -> bool {
        let _one = self.changing.lock().expect("nobody panics while changing");
        let mut sales = HashMap::clone(&self.sales.load());
        let changed = change(&mut sales);
        if changed {
            self.sales.store(Arc::new(sales));
        }
        changed
    }

    /// Reads the buyers of a sale that has just been sold out. Without them Redis goes on being asked.
    async fn learn_buyers(&self, coupon: CouponId, sale: &SoldOut) {
        let stop = self.shutdown.stop_token();
        let learned = tokio::select! {
            () = stop.cancelled() => return,
            learned = self.read_buyers(coupon, &sale.edition) => learned,
        };
        match learned {
            Ok(Some(buyers)) => {
                let _ = sale.buyers.set(buyers);
            }
            // It is another edition by now, too large, or not whole: without a filter, Redis is asked for everybody, and
            // nobody reads them again.
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
        edition: &Edition,
    ) -> Result<Option<BloomFilter>, Failure> {
        if *self.redis.link().await?.server() != edition.server {
            return Ok(None);
        }
        // As many as there are units; fewer, if Redis has lost some.
        let mut command = redis::cmd("HGET");
        command.arg(self.keys.coupon(coupon)).arg("total");
        let total: usize = self.redis.query::<Option<usize>>(&command).await?.unwrap_or(0);
        if total > limits::SOLD_OUT_BUYERS_MAX {
            return Ok(None);
        }
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
        command.arg(self.keys.coupon(coupon)).arg("stock").arg("epoch").arg("returns");
        let link = self.redis.link().await?;
        let (stock, epoch, returns): (Option<i64>, Option<i64>, Option<i64>) =
            link.query(&command).await?;
        let same = *link.server() == edition.server
            && epoch == Some(edition.epoch)
            && returns.unwrap_or(0) == edition.returns;
        Ok(Some(filter).filter(|_| same && stock == Some(0) && found >= total))
    }

    fn ms(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.started).as_millis()).unwrap_or(u64::MAX)
    }

    fn ms_ago(&self, ms: u64) -> Duration {
        Duration::from_millis(self.ms(Instant::now()).saturating_sub(ms))
    }
}
