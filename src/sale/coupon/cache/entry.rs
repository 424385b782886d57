//! Knowledge of a process about one id: the record of Postgres, and the finished body. Readers take no lock.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::base::limits;
use crate::kit::tagged::TaggedJson;
use crate::sale::Failure;
use crate::sale::coupon::read::StoredRow;

/// The last failure of Postgres, and its time.
pub type LastFailure = Option<(Instant, Arc<Failure>)>;

/// Knowledge about an id.
#[derive(Default)]
pub struct Entry {
    /// Empty until Postgres has answered.
    record: ArcSwapOption<Record>,
    /// Held by the one caller that asks Postgres; remembers the failure for those that wait.
    pub asking_postgres: Arc<Mutex<LastFailure>>,
    /// Empty until a record was put together with units left.
    shown: ArcSwapOption<Shown>,
    /// Held by the one caller that asks Redis and puts the body together. Taken before `asking_postgres`.
    pub composing: Mutex<()>,
}

/// A coupon as Postgres had it.
pub struct Record {
    /// None if no coupon had the id.
    pub row: Option<StoredRow>,
    /// Moment before the question.
    pub asked_at: Instant,
    /// Age from which it is read again aside.
    renewed_after: Duration,
    /// Age from which it is shown no more.
    shown_max: Duration,
}

/// A finished body.
pub struct Shown {
    /// The record in it.
    pub record: Arc<Record>,
    /// Units left in it, by Redis.
    pub left: Option<i64>,
    /// Moment before Redis was asked for them; none if Redis has not been asked.
    pub counted_at: Option<Instant>,
    /// True if Redis had no later revision than the record's then.
    pub is_confirmed: bool,
    /// The body.
    pub body: TaggedJson,
}

impl Entry {
    /// The record, if it may still be shown.
    pub fn record(&self, now: Instant) -> Option<Arc<Record>> {
        self.record.load_full().filter(|record| now < record.asked_at + record.shown_max)
    }

    /// The record, if it was asked for at this moment or later.
    pub fn record_since(&self, moment: Instant) -> Option<Arc<Record>> {
        self.record.load_full().filter(|record| record.asked_at >= moment)
    }

    /// The body with this record, if its units left may still be shown.
    pub fn shown(&self, record: &Arc<Record>, now: Instant) -> Option<TaggedJson> {
        let shown = self.shown.load();
        let fits = |shown: &&Arc<Shown>| {
            Arc::ptr_eq(&shown.record, record) && (!record.is_in_redis() || shown.counts(now))
        };
        let may_be_old =
            |shown: &&Arc<Shown>| shown.is_confirmed || !record.needs_confirmation(now);
        shown.as_ref().filter(fits).filter(may_be_old).map(|shown| shown.body.clone())
    }

    /// Answer of Redis that was asked for last, with any record, if its units left may still be shown.
    pub fn counted(&self, now: Instant) -> Option<Arc<Shown>> {
        self.shown.load_full().filter(|shown| shown.counts(now))
    }

    /// Keeps a record.
    pub fn keep_record(&self, record: Arc<Record>) {
        self.record.store(Some(record));
    }

    /// Keeps a body.
    pub fn keep_shown(&self, shown: Shown) {
        self.shown.store(Some(Arc::new(shown)));
    }
}

impl Record {
    /// A row that was asked for at this moment, of a coupon with this part of the spread of renewals.
    pub fn new(row: Option<StoredRow>, asked_at: Instant, spread: Duration) -> Self {
        // Where Postgres counts the units left, the record is no older than they may be.
        let counts_units = row.as_ref().is_some_and(|row| row.total.is_some() && !row.in_redis);
        let (renewed_after, shown_max) = match &row {
            Some(row) if row.in_redis => {
                (limits::COUPON_CONFIRMED_RENEWED_AFTER, limits::COUPON_CONFIRMED_SHOWN_MAX)
            }
            _ if counts_units => (limits::COUPON_RENEWED_AFTER, limits::LEFT_SHOWN_MAX),
            _ => (limits::COUPON_RENEWED_AFTER, limits::COUPON_SHOWN_MAX),
        };
        Self { row, asked_at, renewed_after: renewed_after + spread, shown_max }
    }

    /// Whether it is time to read it again.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.asked_at + self.renewed_after
    }

    /// True from the age on at which the record is shown only if Redis has confirmed its revision.
    pub fn needs_confirmation(&self, now: Instant) -> bool {
        self.is_in_redis() && now >= self.asked_at + limits::COUPON_SHOWN_MAX
    }

    /// Whether Redis has to hold the sale.
    pub fn is_in_redis(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.in_redis)
    }

    /// True if the record has all values up to this revision, which is that of Redis.
    pub fn is_confirmed_by(&self, revision: Option<i64>) -> bool {
        let row = self.row.as_ref();
        row.zip(revision).is_some_and(|(row, revision)| row.revision >= revision)
    }
}

impl Shown {
    /// Whether its units left may still be shown.
    fn counts(&self, now: Instant) -> bool {
        self.counted_at.is_some_and(|at| now < at + limits::LEFT_SHOWN_MAX)
    }
}
