//! Unique 64-bit ids that grow with time, without a coordinator but Redis's INCRBY.
//!
//! ```text
//!  0 | 31 bits: seconds since 2022-01-01T00:00:00Z | 32 bits: number in the sequence of the UTC day
//! ```
//!
//! # Model
//!
//! Each UTC day has a sequence in Redis. An instance takes numbers from it in blocks and hands them out from memory.
//! An id is the second in which it was handed out and a number of *that second's day*.
//!
//! # Why ids are unique
//!
//! Two ids with the same seconds lie in the same day, hence took their numbers from the same sequence, which never
//! gives a number twice. That holds whatever the instances' clocks say: a wrong clock takes its numbers from the
//! wrong day's sequence, but its ids carry that same wrong day. So a block is used only while the clock shows the day
//! of its key, also when the clock is set back.
//!
//! # When Redis goes back in time
//!
//! A Redis that starts again, a replica that takes over, or FLUSHALL may leave an older sequence, or none. So numbers
//! are handed out only below a *ceiling*, which Postgres has noted before ([`Ceilings`]) for one origin of Redis's
//! data: its life and its replication ID. Under another origin the sequence goes on above the ceiling
//! (`lua/id_block.lua`), where no number has been given. Numbers of blocks in memory lie below, and stay unique; they
//! are dropped all the same when an *era* begins ([`IdGenerator::enter`]), so that later ids are higher.
//!
//! A memory that goes back within one life and one replication ID, as that of a machine does which is set back to a
//! snapshot, shows by its numbers: an instance that has had a higher one believes the ceiling no more.
//!
//! The ceiling is raised ahead of need ([`IdGenerator::prepare`]), so ids go on for a while when Postgres is away.
//!
//! # What is not promised
//!
//! Ids have gaps: a block dies with its instance and at midnight, and each origin leaves out what was granted to the
//! one before. Ids bound how many were handed out in a day, and don't count them. Ids of two instances are ordered by
//! seconds only, within an era. A number may come twice in one second if Postgres and Redis both went back in time, and
//! a clock did too; and if Redis's memory went back within one life, at an instance that has taken none since, until
//! another one takes its next block. A store of ids has to refuse the second one.

// The numbers below which Redis may hand out.
mod ceilings;

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use chrono::{DateTime, NaiveDate, Utc};
use redis::RedisError;

pub use self::ceilings::Ceilings;
use self::ceilings::Granted;
use super::redis::Link;
use super::script::Script;
use crate::base::clock::Clock;
use crate::base::limits;

/// The first day that an id can carry.
pub const FIRST_DAY: NaiveDate =
    NaiveDate::from_ymd_opt(2022, 1, 1).expect("the year has a first day");
/// Its begin, in seconds since 1970.
const EPOCH_SECONDS: i64 = 1_640_995_200;
const SEQUENCE_BITS: u32 = 32;
const SEQUENCE_MAX: i64 = (1 << SEQUENCE_BITS) - 1;
const SECONDS_MAX: i64 = (1 << 31) - 1;
/// Suffix of a sequence's name, for the key of its ceiling.
const CEILING: &str = ":ceiling";
/// Times that the ceiling is raised for one block: Redis may have another origin each time.
const RAISES_MAX: usize = 3;

/// Reason why there is no id; a wrapped or repeated id is never given instead.
#[derive(Debug, thiserror::Error)]
pub enum IdError {
    /// Redis gave no numbers.
    #[error("no numbers from Redis: {0}")]
    Redis(#[from] RedisError),
    /// The ceiling could not be raised.
    #[error("no numbers from Postgres: {0}")]
    Postgres(#[from] sqlx::Error),
    /// Redis has had another origin each time that its ceiling was raised.
    #[error("no numbers from Redis, which keeps changing")]
    Unsettled,
    /// The 2^32 numbers of one day are used up.
    #[error("the sequence of {0} has passed 32 bits: no more ids today")]
    SequenceExhausted(NaiveDate),
    /// The clock is before 2022 or after 2090.
    #[error("the clock shows {0}, outside of what an id can carry (2022 to 2090): set the clock")]
    ClockOutOfRange(DateTime<Utc>),
}

/// Hands out ids.
pub struct IdGenerator {
    clock: Clock,
    /// Start of the keys of the sequences; `:yyyy:mm:dd` follows.
    key_prefix: String,
    /// Numbers taken from Redis at a time.
    block_size: u32,
    take_block: Script<2>,
    ceilings: Ceilings,
    /// Number of the present era.
    era: AtomicI64,
    /// The block in use. Held for a few instructions, never across an await.
    block: Mutex<Option<Block>>,
    /// Lets one caller fetch a block while the others wait for it.
    refill: tokio::sync::Mutex<()>,
}

struct Block {
    day: NaiveDate,
    era: i64,
    next: i64,
    last: i64,
}

impl IdGenerator {
    /// A generator for the sequences `<key_prefix>:yyyy:mm:dd`, under these ceilings.
    pub fn new(key_prefix: String, block_size: u32, clock: Clock, ceilings: Ceilings) -> Self {
        assert!(block_size > 0, "a block holds at least one number");
        Self {
            clock,
            key_prefix,
            block_size,
            take_block: Script::new(include_str!("../../../lua/id_block.lua")),
            ceilings,
            era: AtomicI64::new(0),
            block: Mutex::default(),
            refill: tokio::sync::Mutex::default(),
        }
    }

    /// The next id. Asks Redis (over `link`) only when the block is used up or no longer valid.
    ///
    /// # Errors
    ///
    /// See [`IdError`].
    pub async fn next(&self, link: &Link) -> Result<i64, IdError> {
        if let Some(id) = self.take_from_block()? {
            return Ok(id);
        }
        let _only_one = self.refill.lock().await;
        loop {
            // Another caller may have filled the block meanwhile; and a block fetched at midnight may be out of date
            // when it arrives.
            if let Some(id) = self.take_from_block()? {
                return Ok(id);
            }
            self.fetch_block(link).await?;
        }
    }

    /// Ids from now on are higher than all ids that any instance handed out before this era, with the same clock: the
    /// present block is dropped. Eras are counted up; an older one changes nothing.
    pub fn enter(&self, era: i64) {
        self.era.fetch_max(era, Ordering::Relaxed);
    }

    /// Raises the ceilings that are near: of today's sequence, and of tomorrow's shortly before midnight. Takes no number.
    ///
    /// # Errors
    ///
    /// See [`IdError`]; ids are handed out as long as there is room below the old ceilings.
    pub async fn prepare(&self, link: &Link) -> Result<(), IdError> {
        let now = self.clock.now();
        let mut days = vec![now.date_naive(), (now + limits::ID_DAY_AHEAD).date_naive()];
        days.dedup();
        for day in days {
            self.take(link, day, (0, limits::ID_NUMBERS_AHEAD)).await?;
        }
        Ok(())
    }

    /// Numbers of a day's sequence that instances have taken; `None` if Redis can't tell, because it has lost the
    /// sequence, or may have gone back in time.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn taken(&self, link: &Link, day: NaiveDate) -> Result<Option<i64>, RedisError> {
        let [sequence, ceiling] = self.names(day);
        // Takes no number, and leaves none below the ceiling: a look alone.
        let seconds_kept = limits::ID_SEQUENCE_KEPT.as_secs();
        let arguments = (0, 0, "", 0, 0, seconds_kept, self.last_of(day));
        let reply = self.take_block.run(link, [&sequence, &ceiling], arguments).await?;
        let (code, last, _): (String, i64, String) = reply;
        Ok((code == "BLOCK").then_some(last))
    }

    /// Numbers of a day's sequence that instances may have taken; `None` if none were granted.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer.
    pub async fn granted(&self, day: NaiveDate) -> sqlx::Result<Option<i64>> {
        self.ceilings.of(&self.names(day)[0]).await
    }

    fn take_from_block(&self) -> Result<Option<i64>, IdError> {
        let now = self.clock.now();
        let mut block = self.block.lock().expect("no holder of this lock panics");
        let Some(block) = block.as_mut() else {
            return Ok(None);
        };
        let era = self.era.load(Ordering::Relaxed);
        if block.day != now.date_naive() || block.era != era || block.next > block.last {
            return Ok(None);
        }
        let id = compose(now, block.next)?;
        block.next += 1;
        Ok(Some(id))
    }

    async fn fetch_block(&self, link: &Link) -> Result<(), IdError> {
        let now = self.clock.now();
        compose(now, 0)?;
        let day = now.date_naive();
        let era = self.era.load(Ordering::Relaxed);
        let block = i64::from(self.block_size);
        let last = self.take(link, day, (block, 0)).await?;
        if last > SEQUENCE_MAX {
            return Err(IdError::SequenceExhausted(day));
        }
        let next = last - block + 1;
        let block = Block { day, era, next, last };
        *self.block.lock().expect("no holder of this lock panics") = Some(block);
        Ok(())
    }

    /// Takes so many numbers, and makes sure that `left_min` are left below the ceiling. Returns the last number that is
    /// taken now.
    async fn take(
        &self,
        link: &Link,
        day: NaiveDate,
        (numbers, left_min): (i64, i64),
    ) -> Result<i64, IdError> {
        let [sequence, ceiling] = self.names(day);
        let seconds_kept = limits::ID_SEQUENCE_KEPT.as_secs();
        let (mut origin, mut granted) = (String::new(), Granted::default());
        for _ in 0..=RAISES_MAX {
            let had = self.last_of(day);
            let arguments =
                (numbers, left_min, origin, granted.after, granted.last, seconds_kept, had);
            let reply = self.take_block.run(link, [&sequence, &ceiling], arguments).await?;
            let (code, last, of_origin): (String, i64, String) = reply;
            if code == "BLOCK" {
                return Ok(last);
            }
            if last >= SEQUENCE_MAX {
                return Err(IdError::SequenceExhausted(day));
            }
            granted = self.ceilings.raise(&sequence, last, limits::ID_NUMBERS_GRANTED).await?;
            origin = of_origin;
        }
        Err(IdError::Unsettled)
    }

    /// The last number of this day that this instance has taken; 0 for none.
    fn last_of(&self, day: NaiveDate) -> i64 {
        let block = self.block.lock().expect("no holder of this lock panics");
        block.as_ref().filter(|block| block.day == day).map_or(0, |block| block.last)
    }

    /// Names of a day's sequence and of its ceiling, in the same slot of a cluster.
    fn names(&self, day: NaiveDate) -> [String; 2] {
        let sequence = format!("{}:{}", self.key_prefix, day.format("%Y:%m:%d"));
        let ceiling = ["{", &sequence, "}", CEILING].concat();
        [sequence, ceiling]
    }
}

fn compose(now: DateTime<Utc>, number: i64) -> Result<i64, IdError> {
    let seconds = now.timestamp() - EPOCH_SECONDS;
    if !(0..=SECONDS_MAX).contains(&seconds) {
        return Err(IdError::ClockOutOfRange(now));
    }
    Ok((seconds << SEQUENCE_BITS) | number)
}

/// The lowest id that carries this time.
pub fn first_at(time: DateTime<Utc>) -> i64 {
    (time.timestamp() - EPOCH_SECONDS).clamp(0, SECONDS_MAX) << SEQUENCE_BITS
}

/// The time that an id carries, to the second.
pub fn time_of(id: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(EPOCH_SECONDS + (id >> SEQUENCE_BITS), 0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use private_servers::testing::{Bounded, bound_this_test};

    use super::*;
    use crate::kit::redis::fake::{Fake, bulk};

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().expect("a valid time")
    }

    #[test]
    fn an_id_is_seconds_and_number() {
        assert_eq!(compose(at("2022-01-01T00:00:00Z"), 1).unwrap(), 1);
        assert_eq!(compose(at("2022-01-01T00:00:01Z"), 7).unwrap(), (1 << 32) | 7);
        assert_eq!(compose(at("2022-01-01T00:00:01.9Z"), SEQUENCE_MAX).unwrap(), (2 << 32) - 1);
    }

    #[test]
    fn the_last_id_is_positive() {
        let last_second = DateTime::from_timestamp(EPOCH_SECONDS + SECONDS_MAX, 0).unwrap();
        assert_eq!(compose(last_second, SEQUENCE_MAX).unwrap(), i64::MAX);
    }

    #[test]
    fn a_clock_out_of_range_is_a_failure() {
        for time in ["2021-12-31T23:59:59Z", "2090-01-20T00:00:00Z"] {
            assert!(matches!(compose(at(time), 1), Err(IdError::ClockOutOfRange(_))), "{time}");
        }
    }

    #[test]
    fn ids_and_times_meet_at_the_bounds() {
        let (last, second) = (EPOCH_SECONDS + SECONDS_MAX, |seconds| {
            DateTime::from_timestamp(seconds, 0).expect("a valid time")
        });
        for (seconds, id) in [
            (EPOCH_SECONDS - 1, None),
            (EPOCH_SECONDS, Some(5)),
            (EPOCH_SECONDS + 2, Some((2 << 32) | 5)),
            (last, Some((((1 << 31) - 1) << 32) | 5)),
            (last + 1, None),
        ] {
            assert_eq!(compose(second(seconds), 5).ok(), id, "{seconds}");
        }
        for (seconds, id) in [
            (0, 0),
            (EPOCH_SECONDS - 1, 0),
            (EPOCH_SECONDS, 0),
            (EPOCH_SECONDS + 1, 1 << 32),
            (last - 1, ((1 << 31) - 2) << 32),
            (last, ((1 << 31) - 1) << 32),
            (last + 1, ((1 << 31) - 1) << 32),
        ] {
            assert_eq!(first_at(second(seconds)), id, "{seconds}");
        }
        for (id, seconds) in [
            (0, EPOCH_SECONDS),
            ((1 << 32) - 1, EPOCH_SECONDS),
            (1 << 32, EPOCH_SECONDS + 1),
            (i64::MAX, last),
        ] {
            assert_eq!(time_of(id), second(seconds), "{id}");
        }
    }

    #[tokio::test]
    async fn a_block_counts_for_its_day_and_its_era_up_to_its_last_number() {
        bound_this_test();
        let pool = sqlx::postgres::PgPoolOptions::new().connect_lazy("postgres://localhost/none");
        let timeout = std::time::Duration::from_secs(1);
        let ceilings = Ceilings::new(pool.expect("a valid URL"), timeout);
        let clock = Clock::manual(at("2026-11-21T12:00:00Z"));
        let ids = IdGenerator::new("numbers".to_owned(), 3, clock.clone(), ceilings);
        let day = clock.now().date_naive();
        assert_eq!(ids.names(day), ["numbers:2026:11:21", "{numbers:2026:11:21}:ceiling"]);
        let take =
            || ids.take_from_block().expect("the clock is in range").map(|id| id & SEQUENCE_MAX);
        let put = |era, next, last| {
            let block = Block { day, era, next, last };
            *ids.block.lock().expect("no holder of this lock panics") = Some(block);
        };
        assert_eq!((take(), ids.last_of(day)), (None, 0));
        put(0, 8, 9);
        let days = [day, day.succ_opt().expect("a day")];
        assert_eq!(days.map(|day| ids.last_of(day)), [9, 0]);
        assert_eq!([take(), take(), take()], [Some(8), Some(9), None]);
        for (time, era, taken) in [
            ("2026-11-21T00:00:00Z", 0, Some(8)),
            ("2026-11-21T23:59:59Z", 0, Some(8)),
            ("2026-11-22T00:00:00Z", 0, None),
            ("2026-11-20T23:59:59Z", 0, None),
            ("2026-11-21T12:00:00Z", 1, None),
            // Eras are counted up.
            ("2026-11-21T12:00:00Z", 0, None),
        ] {
            put(0, 8, 9);
            clock.set(at(time));
            ids.enter(era);
            assert_eq!(take(), taken, "{time}, era {era}");
        }
        put(1, 8, 9);
        assert_eq!(take(), Some(8));
    }

    /// A generator of blocks of three, whose ceilings can't be raised.
    fn generator(clock: &Clock) -> IdGenerator {
        let pool = sqlx::postgres::PgPoolOptions::new().connect_lazy("postgres://localhost/none");
        let timeout = std::time::Duration::from_millis(10);
        let ceilings = Ceilings::new(pool.expect("a valid URL"), timeout);
        IdGenerator::new("numbers".to_owned(), 3, clock.clone(), ceilings)
    }

    /// A server whose script replies with this code and this last number.
    async fn server(code: &'static str, last: i64) -> (Fake, Arc<Link>) {
        let reply = format!("*3\r\n{}:{last}\r\n{}", bulk(code), bulk("origin"));
        let server = Fake::master("a", move |_| Some(reply.clone())).await;
        let link = server.link().await;
        (server, link)
    }

    #[tokio::test]
    async fn prepare_looks_at_today_s_ceiling_and_in_the_last_hour_at_tomorrow_s() {
        bound_this_test();
        let clock = Clock::manual(at("2026-11-21T12:00:00Z"));
        let (server, link) = server("BLOCK", 7).await;
        let ids = generator(&clock);
        for (time, days) in [
            ("2026-11-21T12:00:00Z", &["2026:11:21"][..]),
            ("2026-11-21T22:59:59Z", &["2026:11:21"]),
            ("2026-11-21T23:00:00Z", &["2026:11:21", "2026:11:22"]),
        ] {
            clock.set(at(time));
            let before = server.commands("EVALSHA").len();
            ids.prepare(&link).bounded().await.expect("there is room");
            let asked = server.commands("EVALSHA").split_off(before);
            assert_eq!(asked.len(), days.len(), "{time}");
            for (command, day) in asked.iter().zip(days) {
                // No number, and 131,072 below the ceiling.
                let tagged = format!("{{numbers:{day}}}");
                let words = format!(" 2 numbers:{day} {tagged}:ceiling 0 131072  0 0 ");
                assert!(command.contains(&words), "{command}");
            }
        }
    }

    #[tokio::test]
    async fn the_numbers_taken_are_known_only_to_a_sequence_below_its_ceiling() {
        bound_this_test();
        let clock = Clock::manual(at("2026-11-21T12:00:00Z"));
        for (code, taken) in [("BLOCK", Some(7)), ("CEILING", None)] {
            let (_server, link) = server(code, 7).await;
            let found = generator(&clock).taken(&link, clock.now().date_naive()).bounded().await;
            assert_eq!(found.expect("an answer"), taken, "{code}");
        }
    }

    #[tokio::test]
    async fn no_block_is_fetched_by_a_clock_that_is_out_of_range() {
        bound_this_test();
        let clock = Clock::manual(at("2021-12-31T23:59:59Z"));
        let (server, link) = server("BLOCK", 3).await;
        let ids = generator(&clock);
        let refused = ids.next(&link).bounded().await;
        assert!(matches!(refused, Err(IdError::ClockOutOfRange(_))), "{refused:?}");
        assert_eq!(server.commands("EVALSHA").len(), 0);
        clock.set(at("2022-01-01T00:00:00Z"));
        assert_eq!(ids.next(&link).bounded().await.expect("a number"), 1);
    }

    #[tokio::test]
    async fn a_sequence_at_its_end_is_exhausted_and_its_ceiling_is_not_raised() {
        bound_this_test();
        let clock = Clock::manual(at("2026-11-21T12:00:00Z"));
        for (last, is_exhausted) in
            [(SEQUENCE_MAX - 1, false), (SEQUENCE_MAX, true), (SEQUENCE_MAX + 1, true)]
        {
            let (_server, link) = server("CEILING", last).await;
            match generator(&clock).next(&link).bounded().await {
                Err(IdError::SequenceExhausted(_)) => assert!(is_exhausted, "{last}"),
                // Postgres is asked.
                Err(IdError::Postgres(_)) => assert!(!is_exhausted, "{last}"),
                other => panic!("{last}: {other:?}"),
            }
        }
    }
}
