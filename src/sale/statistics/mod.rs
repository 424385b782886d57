//! Statistics of a day: accepted claims and orders by Postgres, the day's sequence, and the answers of this process.
//!
//! # Model
//!
//! The day of a claim is the UTC day that the id of its order carries. So the orders of a day are one range of the
//! primary key, however late their rows were written, and they are told with the status that they have now.
//!
//! # The sequence is an upper bound
//!
//! Tutorials read the number of a day's orders off the counter of its ids. Here that number is a bound, and no count:
//! a claim has its number before the script decides, so refused claims have numbers, too; a process takes numbers in
//! blocks, and what is left of a block is lost with the process and at midnight; and a Redis that has gone back in time
//! leaves numbers out (`kit/id/mod.rs`). None of this can make the number too small. Orders are counted first and the
//! sequence is read afterwards, so the bound holds within one answer.
//!
//! # What is not told
//!
//! No store keeps a refusal. Each process counts its own answers, by code; an answer has those of the process that
//! gives it, since the day or the process began. Of a day that is over, they are not told.

// Orders and dead letters of a day.
mod counted;
// The day.
mod day;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, NaiveDate, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use self::counted::{Counted, Counts};
pub use self::day::{Day, InvalidDay};
use crate::base::clock::Clock;
use crate::base::telemetry::Metrics;
use crate::kit::id::IdGenerator;
use crate::sale::{Failure, Stores};

/// Statistics of a day.
#[derive(Debug, Serialize, ToSchema)]
pub struct DayStatistics {
    /// The UTC day, which the ids of its orders carry.
    pub day: NaiveDate,
    /// When its claims were counted: now, or, on a day with many orders, a short while ago.
    pub counted_at: DateTime<Utc>,
    /// True if all orders of the day are counted; false once its month may have left the history.
    pub is_whole: bool,
    /// Accepted claims that have reached Postgres: orders and dead letters. Those that still wait in the order log come
    /// on top.
    pub claims: i64,
    /// Orders by the status that they have now; statuses without an order are left out.
    pub orders: BTreeMap<String, i64>,
    /// Accepted claims that are dead letters and no orders, open and closed ones.
    pub dead_letters: i64,
    /// The sequence that numbers the orders of the day.
    pub sequence: Sequence,
    /// Answers to claims by the process that tells the statistics; null for a day that is over, since no store keeps a
    /// refusal.
    pub process: Option<Answers>,
}

/// The sequence of a day.
#[derive(Debug, Serialize, ToSchema)]
pub struct Sequence {
    /// The day has no more orders than this; null if neither store knows the sequence any more.
    pub orders_at_most: Option<i64>,
    /// Numbers that processes have taken, by Redis; null if Redis has lost them, or has gone back in time since.
    pub taken: Option<i64>,
    /// Numbers that may have been taken, by Postgres.
    pub granted: Option<i64>,
    /// Reason why this is a bound and no count.
    pub reason: &'static str,
}

/// Answers to claims by one process.
#[derive(Debug, Serialize, ToSchema)]
pub struct Answers {
    /// Begin of the count: of the process, or of the day.
    pub since: DateTime<Utc>,
    /// Claims by outcome: `accepted`, `created`, and each refusal by its code.
    pub claims: BTreeMap<String, u64>,
}

const REASON: &str = "refused claims take numbers, too; what is left of a block of numbers is lost with its process and at midnight; and a Redis that went back in time leaves numbers out";

/// Tells statistics.
pub struct Statistics {
    stores: Stores,
    ids: Arc<IdGenerator>,
    metrics: Arc<Metrics>,
    clock: Clock,
    /// Answers before the present day.
    begin: Mutex<Begin>,
    counts: Counts,
}

struct Begin {
    day: Day,
    since: DateTime<Utc>,
    claims: BTreeMap<String, u64>,
}

impl Statistics {
    /// Counts the answers of this process from now on.
    pub fn new(
        stores: &Stores,
        ids: Arc<IdGenerator>,
        metrics: Arc<Metrics>,
        clock: Clock,
    ) -> Self {
        let since = clock.now();
        let begin = Begin { day: Day(since.date_naive()), since, claims: claims(&metrics) };
        let counts = Counts::new(stores.pool.clone(), clock.clone());
        Self { stores: stores.clone(), ids, metrics, clock, begin: Mutex::new(begin), counts }
    }

    /// Today.
    pub fn today(&self) -> Day {
        Day(self.clock.now().date_naive())
    }

    /// Begins a new day, if it is one: its answers are counted from now on.
    pub fn begin_day(&self) {
        let mut begin = self.begin.lock().unwrap_or_else(PoisonError::into_inner);
        if begin.day != self.today() {
            let claims = claims(&self.metrics);
            *begin = Begin { day: self.today(), since: self.clock.now(), claims };
        }
    }

    /// Statistics of this day; `None` for a day that is still to come.
    pub async fn of(&self, day: Day) -> Result<Option<DayStatistics>, Failure> {
        if day.0 > self.today().0 {
            return Ok(None);
        }
        let Counted { at, orders, letters: dead_letters, is_whole } = self.counts.of(day).await?;
        // Read afterwards, so that no order is above it.
        let sequence = self.sequence(day).await?;
        let claims = orders.values().sum::<i64>() + dead_letters;
        let process = self.answers(day);
        Ok(Some(DayStatistics {
            day: day.0,
            counted_at: at,
            is_whole,
            claims,
            orders,
            dead_letters,
            sequence,
            process,
        }))
    }

    /// Numbers of the day's sequence that processes have taken, by Redis; `None` if Redis can't tell.
    pub async fn taken(&self, day: Day) -> Result<Option<i64>, Failure> {
        let link = self.stores.redis.link().await?;
        Ok(self.ids.taken(&link, day.0).await?)
    }

    async fn sequence(&self, day: Day) -> Result<Sequence, Failure> {
        let taken = self.taken(day).await?;
        let granted = self.ids.granted(day.0).await?;
        Ok(Sequence { orders_at_most: taken.or(granted), taken, granted, reason: REASON })
    }

    fn answers(&self, day: Day) -> Option<Answers> {
        self.begin_day();
        let begin = self.begin.lock().unwrap_or_else(PoisonError::into_inner);
        let mut claims = claims(&self.metrics);
        for (code, before) in &begin.claims {
            claims.entry(code.clone()).and_modify(|now| *now -= before);
        }
        (begin.day == day).then_some(Answers { since: begin.since, claims })
    }
}

/// Answers of this process since its start.
fn claims(metrics: &Metrics) -> BTreeMap<String, u64> {
    metrics.claims().map(|(code, claims)| (code.to_owned(), claims)).collect()
}
