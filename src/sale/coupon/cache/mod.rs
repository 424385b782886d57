//! Coupons as shoppers read them, kept in the memory of the process.
//!
//! # Model
//!
//! Two caches with a time to live, one before the other. A *row* of Postgres has words, prices, state, window and total, and
//! lives for [`limits::COUPON_ROW_MEMORY`]. A finished *body* has the units left, too, which are Redis's, and lives for
//! [`limits::LEFT_SHOWN_MAX`]: together no reader is shown a row that was read more than a second ago.
//!
//! * Whoever finds nothing asks, and the others wait for the answer, or are told the failure. So a sale costs at most five
//!   questions to Redis and two to Postgres a second, however many read it.
//! * The question to Redis tells the revision that it has: with a newer one than the row's, or none, the row is read again
//!   at once.
//! * An id without a coupon is remembered like one with a coupon, within the same bound. Most of them are not even asked
//!   about: the id's own form proves that no coupon has it (`existing.rs`).
//!
//! # Authority
//!
//! The stores. A change is committed first; then this process begins a new generation, and tells the others on a channel of
//! Redis, on which each process listens anyway (`sale/claim/memory/listener.rs`). Keys carry the generation: an answer that
//! was asked for before a change belongs to an older one, where no later reader looks.
//!
//! # What each failure does
//!
//! * The message gets lost: the other process shows the older coupon until Redis has another revision or the row is too
//!   old.
//! * Redis doesn't answer: the units left are unknown (null) for as long as they would have been shown.
//! * Postgres doesn't answer: readers are told the failure once the copies are too old.
//!
//! # What is not promised
//!
//! Two processes may show different coupons for up to a second, and different units left for longer than that never. A claim
//! of this very process is seen in the units left 200 ms later, not at once.

// Ids that coupons can have.
mod existing;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moka::future::Cache;

use self::existing::ExistingIds;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::kit::redis::Redis;
use crate::kit::tagged::TaggedJson;
use crate::sale::coupon::read::{CouponReader, InRedis, StoredRow};
use crate::sale::ids::CouponId;
use crate::sale::{Failure, Stores};

/// Keeps coupons. Clones share them.
#[derive(Clone)]
pub struct CouponCache(Arc<Shared>);

struct Shared {
    stored: CouponReader,
    redis: Redis,
    /// Channel on which the processes tell each other of changes.
    channel: String,
    /// Coupons that were created or changed, as far as this process knows.
    generation: AtomicU64,
    existing: ExistingIds,
    rows: Cache<Key, Option<Arc<StoredRow>>>,
    bodies: Cache<Key, Option<TaggedJson>>,
    /// Owner of the tasks that tell the others.
    shutdown: Shutdown,
}

/// A coupon in a generation.
type Key = (u64, CouponId);

impl CouponCache {
    /// Knows nothing yet.
    pub fn new(stores: &Stores, stored: CouponReader, shutdown: Shutdown) -> Self {
        Self(Arc::new(Shared {
            redis: stores.redis.clone(),
            channel: stores.keys.changes_channel(),
            generation: AtomicU64::default(),
            existing: ExistingIds::new(stored.clone()),
            stored,
            rows: Cache::builder()
                .max_capacity(limits::COUPONS_SHOWN_MAX)
                .time_to_live(limits::COUPON_ROW_MEMORY)
                .build(),
            bodies: Cache::builder()
                .max_capacity(limits::COUPONS_SHOWN_MAX)
                .time_to_live(limits::LEFT_SHOWN_MAX)
                .build(),
            shutdown,
        }))
    }

    /// The coupon, in JSON; `None` if there is none.
    pub async fn show(&self, coupon: CouponId) -> Result<Option<TaggedJson>, Failure> {
        let key = (self.0.generation.load(Ordering::Acquire), coupon);
        if let Some(body) = self.0.bodies.get(&key).await {
            return Ok(body);
        }
        if !self.0.existing.may_be(key).await? {
            return Ok(None);
        }
        Ok(self.0.bodies.try_get_with(key, Box::pin(self.compose(key))).await?)
    }

    /// Forgets a coupon that this process has created or changed, and tells the other processes.
    pub fn changed(&self, coupon: CouponId) {
        self.forget();
        let this = self.0.clone();
        // No change waits for that: the others learn of it within a second in any case.
        self.0.shutdown.spawn(async move {
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(&this.channel).arg(coupon.get());
            if let Err(error) = this.redis.query::<i64>(&publish).await {
                tracing::debug!(%coupon, %error, "the other processes can't be told of a change");
            }
        });
    }

    /// Forgets all coupons, because one was created or changed: the next reader is shown what the stores have now. Changes
    /// are rare, and each coupon is read again by one question.
    pub fn forget(&self) {
        self.0.generation.fetch_add(1, Ordering::Release);
    }

    /// The body, put together from both stores.
    async fn compose(&self, key: Key) -> Result<Option<TaggedJson>, Failure> {
        let mut row = self.row(key).await?;
        let mut left = None;
        if let Some(shown) = row.as_ref().filter(|row| row.in_redis)
            && let Some(found) = self.ask_redis(key.1).await
        {
            left = found.left;
            if found.revision.is_none_or(|revision| revision > shown.revision) {
                self.0.rows.invalidate(&key).await;
                row = self.row(key).await?;
            }
        }
        Ok(row
            .map(|row| TaggedJson::of_revision(row.revision, &StoredRow::clone(&row).coupon(left))))
    }

    async fn row(&self, key: Key) -> Result<Option<Arc<StoredRow>>, Failure> {
        let asked = async {
            let row = self.0.stored.row(key.1).await.map_err(Failure::from)?;
            Ok::<_, Failure>(row.map(Arc::new))
        };
        Ok(self.0.rows.try_get_with(key, asked).await?)
    }

    /// Facts of Redis about a sale; `None` while Redis can't tell.
    async fn ask_redis(&self, coupon: CouponId) -> Option<InRedis> {
        let asked = self.0.stored.in_redis(coupon).await;
        asked
            .inspect_err(|error| tracing::debug!(%coupon, %error, "no units left can be read"))
            .ok()
    }
}
