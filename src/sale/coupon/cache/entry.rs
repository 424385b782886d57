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
        let (renewed_after, shown_max) = match &row {
            Some(row) if row.in_redis => {
                (limits::COUPON_CONFIRMED_RENEWED_AFTER, limits::COUPON_CONFIRMED_SHOWN_MAX)
            }
            // Postgres counts the units left, and the record is no older than they may be.
            Some(row) if row.total.is_some() => {
                (limits::COUPON_RENEWED_AFTER, limits::LEFT_SHOWN_MAX)
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    const NS: Duration = Duration::from_nanos(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn record(row: Option<StoredRow>, asked_at: Instant) -> Arc<Record> {
        Arc::new(Record::new(row, asked_at, Duration::ZERO))
    }

    #[test]
    fn a_record_is_renewed_and_forgotten_at_the_age_of_its_kind() {
        let asked_at = Instant::now();
        for (row, renewed_after, shown_max, needs_confirmation) in [
            (None, ms(900), ms(1_000), false),
            (Some(StoredRow::example(None, false, 3)), ms(900), ms(1_000), false),
            (Some(StoredRow::example(Some(9), false, 3)), ms(900), ms(200), false),
            (Some(StoredRow::example(Some(9), true, 3)), ms(1_000), ms(1_200), true),
        ] {
            let entry = Entry::default();
            assert!(entry.record(asked_at).is_none() && entry.record_since(asked_at).is_none());
            let kept = record(row.clone(), asked_at);
            entry.keep_record(kept.clone());
            let shown = [asked_at, asked_at + shown_max - NS, asked_at + shown_max]
                .map(|now| entry.record(now).is_some());
            assert_eq!(shown, [true, true, false], "up to {shown_max:?}");
            let spread = Record::new(row, asked_at, ms(7));
            let due = asked_at + renewed_after;
            assert_eq!([due - NS, due].map(|now| kept.is_due(now)), [false, true]);
            assert_eq!(
                [due + ms(7) - NS, due + ms(7)].map(|now| spread.is_due(now)),
                [false, true]
            );
            let old = asked_at + ms(1_000);
            let needs = [old - NS, old].map(|now| kept.needs_confirmation(now));
            assert_eq!(needs, [false, needs_confirmation]);
            assert_eq!(kept.is_in_redis(), needs_confirmation);
            let since =
                [asked_at, asked_at + NS].map(|moment| entry.record_since(moment).is_some());
            assert_eq!(since, [true, false]);
        }
    }

    #[test]
    fn redis_confirms_a_record_with_its_revision_or_an_older_one() {
        let of = |row| record(row, Instant::now());
        let sale = of(Some(StoredRow::example(Some(9), true, 3)));
        let confirmed = [Some(2), Some(3), Some(4), None].map(|it| sale.is_confirmed_by(it));
        assert_eq!(confirmed, [true, true, false, false]);
        assert!(!of(None).is_confirmed_by(Some(1)));
    }

    #[test]
    fn a_body_is_shown_with_its_own_record_while_its_units_count() {
        let asked_at = Instant::now();
        let sale = record(Some(StoredRow::example(Some(9), true, 3)), asked_at);
        let regular = record(Some(StoredRow::example(None, false, 3)), asked_at);
        let again = record(Some(StoredRow::example(Some(9), true, 3)), asked_at);
        for (of, asked, counted_at, is_confirmed, now, is_shown, counts) in [
            (&sale, &sale, Some(0), true, 199, true, true),
            (&sale, &sale, Some(0), true, 200, false, false),
            (&sale, &sale, None, true, 0, false, false),
            (&sale, &sale, Some(900), false, 999, true, true),
            (&sale, &sale, Some(900), false, 1_000, false, true),
            (&sale, &sale, Some(900), true, 1_000, true, true),
            (&sale, &again, Some(0), true, 0, false, true),
            (&regular, &regular, None, false, 5_000, true, false),
        ] {
            let entry = Entry::default();
            let now = asked_at + ms(now);
            assert!(entry.shown(asked, now).is_none() && entry.counted(now).is_none());
            let body = TaggedJson::of_revision(3, &"body");
            let counted_at = counted_at.map(|at| asked_at + ms(at));
            entry.keep_shown(Shown {
                record: of.clone(),
                left: Some(8),
                counted_at,
                is_confirmed,
                body,
            });
            let case = format!("{counted_at:?} {is_confirmed} {now:?}");
            assert_eq!(entry.shown(asked, now).is_some(), is_shown, "{case}");
            assert_eq!(entry.counted(now).is_some(), counts, "{case}");
        }
    }
}
