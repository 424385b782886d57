//! Coupons as shoppers read them, kept in the memory of the process.
//!
//! # Model
//!
//! A coupon has two parts that age apart. Its *record* is the row of Postgres: words, prices, state, window, total. The
//! *units left* are Redis's. Both are put together once into a finished body, which each reader is handed until one of
//! the two is too old.
//!
//! * The record expires logically: from about [`limits::COUPON_RENEWED_AFTER`] on, one task reads it again, and readers
//!   are still shown the older one. At [`limits::COUPON_SHOWN_MAX`] it is shown no more, and readers wait for the next.
//! * The units left are shown for [`limits::LEFT_SHOWN_MAX`], then asked for again. The same question tells the
//!   revision that Redis has: a newer one than the record's, or none, has the record read again at once. A record that
//!   Redis has confirmed by that is read again from [`limits::COUPON_CONFIRMED_RENEWED_AFTER`] on, and shown up to
//!   [`limits::COUPON_CONFIRMED_SHOWN_MAX`].
//! * One caller asks, and the others wait for the answer (`entry.rs`). So a sale costs at most five questions to Redis
//!   and one to Postgres a second, however many read it.
//! * An id without a coupon is remembered like one with a coupon, in the same bounded memory. Most of them are not even
//!   asked about: the id's own form proves that no coupon has it (`existing.rs`).
//!
//! # Authority
//!
//! The stores. A change is committed first; then this process forgets the coupon, and tells the others on a channel of
//! Redis, on which each process listens anyway (`sale/claim/memory/listener.rs`). To forget is to remove the entry from
//! the map: an answer that was asked for before the change goes into the removed entry, where no later reader looks.
//!
//! # What each failure does
//!
//! * The message gets lost: the other process shows the older coupon until Redis has another revision or the record is
//!   too old.
//! * Redis doesn't answer: the units left are unknown (null), for as long as they would have been shown, and the record is
//!   shown for [`limits::COUPON_SHOWN_MAX`], since it is not confirmed.
//! * Postgres doesn't answer: the record is shown until it is too old. Then readers are told the failure, and one of
//!   them asks, every [`limits::COUPON_FAILURE_MEMORY`].
//! * The caller that asks is cancelled: the next one asks.
//!
//! # What is not promised
//!
//! Two processes may show different coupons for up to a second, and different units left for longer than that never. A
//! change that Redis could not be told (its answer is 202) takes up to [`limits::COUPON_CONFIRMED_SHOWN_MAX`].
//! A claim of this very process is seen in the units left 200 ms later, not at once.

// Knowledge about one id.
mod entry;

// Ids that coupons can have.
mod existing;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use self::entry::{Entry, LastFailure, Record, Shown};
use self::existing::ExistingIds;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::kit::redis::Redis;
use crate::kit::tagged::TaggedJson;
use crate::sale::coupon::read::{CouponReader, InRedis};
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
    existing: ExistingIds,
    entries: moka::sync::Cache<CouponId, Arc<Entry>>,
    /// Owner of the tasks that read a coupon again.
    shutdown: Shutdown,
}

impl CouponCache {
    /// Knows nothing yet.
    pub fn new(stores: &Stores, stored: CouponReader, shutdown: Shutdown) -> Self {
        let entries = moka::sync::Cache::builder()
            .max_capacity(limits::COUPONS_SHOWN_MAX)
            .time_to_idle(limits::COUPON_SHOWN_IDLE)
            .build();
        let channel = stores.keys.changes_channel();
        let existing = ExistingIds::new(stored.clone());
        let redis = stores.redis.clone();
        Self(Arc::new(Shared { stored, redis, channel, existing, entries, shutdown }))
    }

    /// The coupon, in JSON; `None` if there is none.
    pub async fn show(&self, coupon: CouponId) -> Result<Option<TaggedJson>, Failure> {
        let Some(entry) = self.entry(coupon).await? else {
            return Ok(None);
        };
        let record = match entry.record(Instant::now()) {
            Some(record) => record,
            None => self.renew(coupon, &entry, None).await?,
        };
        if record.is_due(Instant::now()) {
            self.renew_aside(coupon, &entry);
        }
        match entry.shown(&record, Instant::now()) {
            Some(body) => Ok(Some(body)),
            None => self.compose(coupon, &entry, record).await,
        }
    }

    /// Forgets a coupon that this process has created or changed, and tells the other processes.
    pub fn changed(&self, coupon: CouponId) {
        self.forget(coupon);
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

    /// Forgets a coupon that was created or changed: the next reader is shown what the stores have now.
    pub fn forget(&self, coupon: CouponId) {
        self.0.existing.forget();
        self.0.entries.invalidate(&coupon);
    }

    /// Knowledge about this id; `None` if no coupon can have it.
    async fn entry(&self, coupon: CouponId) -> Result<Option<Arc<Entry>>, Failure> {
        if let Some(entry) = self.0.entries.get(&coupon) {
            return Ok(Some(entry));
        }
        match self.0.existing.may_be(coupon).await? {
            true => Ok(Some(self.0.entries.get_with(coupon, Arc::default))),
            false => Ok(None),
        }
    }

    /// Has a task read the record again, unless one does.
    fn renew_aside(&self, coupon: CouponId, entry: &Arc<Entry>) {
        let Ok(turn) = entry.asking_postgres.clone().try_lock_owned() else {
            return;
        };
        let (this, entry) = (self.clone(), entry.clone());
        self.0.shutdown.spawn(async move {
            if let Err(error) = this.ask_postgres(coupon, &entry, turn).await {
                tracing::debug!(%coupon, %error, "a coupon can't be read again");
            }
        });
    }

    /// A record, asked for by one caller for all; not before `since`, if that is given. An answer that has taken long
    /// is good for each caller that had come before the question, however old it is.
    async fn renew(
        &self,
        coupon: CouponId,
        entry: &Entry,
        since: Option<Instant>,
    ) -> Result<Arc<Record>, Failure> {
        let came_at = since.unwrap_or_else(Instant::now);
        let turn = entry.asking_postgres.clone().lock_owned().await;
        if let Some(record) = entry.record_since(came_at) {
            return Ok(record);
        }
        if let Some(record) = entry.record(Instant::now()).filter(|_| since.is_none()) {
            return Ok(record);
        }
        if let Some((at, failure)) = &*turn
            && at.elapsed() < limits::COUPON_FAILURE_MEMORY
        {
            return Err(failure.clone().into());
        }
        self.ask_postgres(coupon, entry, turn).await
    }

    async fn ask_postgres(
        &self,
        coupon: CouponId,
        entry: &Entry,
        mut turn: OwnedMutexGuard<LastFailure>,
    ) -> Result<Arc<Record>, Failure> {
        let asked_at = Instant::now();
        match self.0.stored.row(coupon).await {
            Ok(row) => {
                let record = Arc::new(Record::new(row, asked_at, spread(coupon)));
                entry.keep_record(record.clone());
                Ok(record)
            }
            Err(error) => {
                let failure = Arc::new(Failure::from(error));
                *turn = Some((Instant::now(), failure.clone()));
                Err(failure.into())
            }
        }
    }

    /// The body of a record with units left that are young enough, put together by one caller for all.
    async fn compose(
        &self,
        coupon: CouponId,
        entry: &Entry,
        mut record: Arc<Record>,
    ) -> Result<Option<TaggedJson>, Failure> {
        let _turn = entry.composing.lock().await;
        record = entry.record(Instant::now()).unwrap_or(record);
        if let Some(body) = entry.shown(&record, Instant::now()) {
            return Ok(Some(body));
        }
        let (mut left, mut counted_at, mut confirmed) = (None, None, None);
        if let Some(counted) = entry.counted(Instant::now()) {
            (left, counted_at) = (counted.left, counted.counted_at);
        } else if record.is_in_redis() {
            counted_at = Some(Instant::now());
            let in_redis = self.ask_redis(coupon).await;
            confirmed = in_redis.as_ref().map(|found| record.is_confirmed_by(found.revision));
            left = in_redis.and_then(|found| found.left);
        }
        let is_confirmed = confirmed == Some(true);
        let is_old = !is_confirmed && record.needs_confirmation(Instant::now());
        if confirmed == Some(false) || is_old {
            record = self.renew(coupon, entry, Some(Instant::now())).await?;
        }
        let Some(row) = record.row.clone() else {
            return Ok(None);
        };
        let body = TaggedJson::of_revision(row.revision, &row.coupon(left));
        entry.keep_shown(Shown { record, left, counted_at, is_confirmed, body: body.clone() });
        Ok(Some(body))
    }

    /// Facts of Redis about a sale; `None` while Redis can't tell.
    async fn ask_redis(&self, coupon: CouponId) -> Option<InRedis> {
        let asked = self.0.stored.in_redis(coupon).await;
        asked
            .inspect_err(|error| tracing::debug!(%coupon, %error, "no units left can be read"))
            .ok()
    }
}

/// Part of the spread of renewals that falls to this coupon.
fn spread(coupon: CouponId) -> Duration {
    let places = limits::COUPON_RENEWAL_SPREAD.as_millis() as i64;
    Duration::from_millis((coupon.sequence() % places).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_of_neighbours_are_spread_over_eighty_milliseconds() {
        for (sequence, ms) in [(1, 1), (2, 2), (79, 79), (80, 0), (81, 1), (1_601, 1)] {
            assert_eq!(spread(CouponId::compose(sequence, 4)), Duration::from_millis(ms));
        }
    }
}
