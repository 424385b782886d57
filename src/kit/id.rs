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
//! A Redis that starts again, or a replica that takes over, may have an older sequence. Blocks die with the life of
//! Redis that gave them. The first block of a new life (`lua/id_block.lua`) begins above the highest number that this
//! instance has had or was [told](IdGenerator::learn) of, and leaves out [`limits::ID_BLOCKS_LEFT_OUT`] blocks for
//! those of other instances, of which no record exists. A sequence that is behind the numbers that an instance knows
//! is raised in the same way, in any life.
//!
//! # What is not promised
//!
//! Uniqueness needs the day's sequence. Two events can lead to a number being handed out twice in one second: a clock
//! that is wrong by more than the sequences are kept (`limits::ID_SEQUENCE_KEPT`), or a FLUSHALL, which doesn't begin
//! another life of Redis. A store of ids has to refuse the second one.
//!
//! Ids have gaps: a block dies with its instance, at midnight, and with the life of Redis. Ids bound how many were
//! handed out in a day, and don't count them. Ids of two instances are ordered by seconds only.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Mutex;

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use redis::RedisError;

use super::redis::{Link, ServerId};
use super::script::Script;
use crate::base::clock::Clock;
use crate::base::limits;

/// 2022-01-01T00:00:00Z, in seconds since 1970.
const EPOCH_SECONDS: i64 = 1_640_995_200;
const SEQUENCE_BITS: u32 = 32;
const SEQUENCE_MAX: i64 = (1 << SEQUENCE_BITS) - 1;
const SECONDS_MAX: i64 = (1 << 31) - 1;
/// Suffix of a sequence's name, for the key that names the life in which the sequence was last raised.
const LIFE: &str = ":life";
/// Days of which an instance remembers the highest number.
const DAYS_REMEMBERED: usize = 8;

/// Reason why there is no id; a wrapped or repeated id is never given instead.
#[derive(Debug, thiserror::Error)]
pub enum IdError {
    /// Redis gave no numbers.
    #[error("no numbers from Redis: {0}")]
    Redis(#[from] RedisError),
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
    /// The highest number that is known to be taken, for the newest days. Wrong clocks may name days that are to
    /// come.
    taken: Mutex<BTreeMap<NaiveDate, i64>>,
    /// The block in use. Held for a few instructions, never across an await.
    block: Mutex<Option<Block>>,
    /// Lets one caller fetch a block while the others wait for it.
    refill: tokio::sync::Mutex<()>,
}

struct Block {
    day: NaiveDate,
    server: ServerId,
    next: i64,
    last: i64,
}

impl IdGenerator {
    /// A generator for the sequences `<key_prefix>:yyyy:mm:dd`.
    pub fn new(key_prefix: String, block_size: u32, clock: Clock) -> Self {
        assert!(block_size > 0, "a block holds at least one number");
        Self {
            clock,
            key_prefix,
            block_size,
            take_block: Script::new(include_str!("../../lua/id_block.lua")),
            taken: Mutex::default(),
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
        if let Some(id) = self.take_from_block(link)? {
            return Ok(id);
        }
        let _only_one = self.refill.lock().await;
        loop {
            // Another caller may have filled the block meanwhile; and a block fetched at midnight may be out of date
            // when it arrives.
            if let Some(id) = self.take_from_block(link)? {
                return Ok(id);
            }
            self.fetch_block(link).await?;
        }
    }

    /// Notes an id that is in use: its number, and all below, may be taken.
    pub fn learn(&self, id: i64) {
        self.learn_number(time_of(id).date_naive(), id & SEQUENCE_MAX);
    }

    fn learn_number(&self, day: NaiveDate, number: i64) {
        let mut taken = self.taken.lock().expect("no holder of this lock panics");
        let highest = taken.entry(day).or_default();
        *highest = number.max(*highest);
        if taken.len() > DAYS_REMEMBERED {
            taken.pop_first();
        }
    }

    /// The highest number of that day that is known to be taken.
    fn taken(&self, day: NaiveDate) -> i64 {
        let taken = self.taken.lock().expect("no holder of this lock panics");
        taken.get(&day).copied().unwrap_or(0)
    }

    fn take_from_block(&self, link: &Link) -> Result<Option<i64>, IdError> {
        let now = self.clock.now();
        let mut block = self.block.lock().expect("no holder of this lock panics");
        let Some(block) = block.as_mut() else {
            return Ok(None);
        };
        if block.day != now.date_naive()
            || block.server != *link.server()
            || block.next > block.last
        {
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
        let sequence = format!("{}:{}", self.key_prefix, day.format("%Y:%m:%d"));
        // In the same slot of a cluster.
        let life = ["{", &sequence, "}", LIFE].concat();
        let block = i64::from(self.block_size);
        let room = (block * limits::ID_BLOCKS_LEFT_OUT).min(limits::ID_NUMBERS_LEFT_OUT_MAX);
        let is_older = link.server_started_at() < day.and_time(NaiveTime::MIN).and_utc();
        let seconds_kept = limits::ID_SEQUENCE_KEPT.as_secs();
        let arguments = (
            block,
            self.taken(day),
            link.server().as_str(),
            room,
            i64::from(is_older),
            seconds_kept,
        );
        let last: i64 = self.take_block.run(link, [&sequence, &life], arguments).await?;
        if last > SEQUENCE_MAX {
            return Err(IdError::SequenceExhausted(day));
        }
        self.learn_number(day, last);
        let next = last - block + 1;
        let block = Block { day, server: link.server().clone(), next, last };
        *self.block.lock().expect("no holder of this lock panics") = Some(block);
        Ok(())
    }
}

fn compose(now: DateTime<Utc>, number: i64) -> Result<i64, IdError> {
    let seconds = now.timestamp() - EPOCH_SECONDS;
    if !(0..=SECONDS_MAX).contains(&seconds) {
        return Err(IdError::ClockOutOfRange(now));
    }
    Ok((seconds << SEQUENCE_BITS) | number)
}

/// All ids that carry a time of this day.
pub fn range_of(day: NaiveDate) -> RangeInclusive<i64> {
    const SECONDS_PER_DAY: i64 = 86_400;
    let first = day.and_time(NaiveTime::MIN).and_utc().timestamp() - EPOCH_SECONDS;
    let seconds = |seconds: i64| seconds.clamp(0, SECONDS_MAX) << SEQUENCE_BITS;
    seconds(first)..=seconds(first + SECONDS_PER_DAY - 1) | SEQUENCE_MAX
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
    use super::*;

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
    fn a_day_has_all_ids_of_its_seconds() {
        let day = range_of(at("2026-11-21T12:00:00Z").date_naive());
        for (time, number, within) in [
            ("2026-11-20T23:59:59Z", SEQUENCE_MAX, false),
            ("2026-11-21T00:00:00Z", 0, true),
            ("2026-11-21T23:59:59Z", SEQUENCE_MAX, true),
            ("2026-11-22T00:00:00Z", 0, false),
        ] {
            assert_eq!(day.contains(&compose(at(time), number).unwrap()), within, "{time}");
        }
        assert_eq!(range_of(at("2021-01-01T00:00:00Z").date_naive()), 0..=SEQUENCE_MAX);
    }

    #[test]
    fn a_clock_out_of_range_is_a_failure() {
        for time in ["2021-12-31T23:59:59Z", "2090-01-20T00:00:00Z"] {
            assert!(matches!(compose(at(time), 1), Err(IdError::ClockOutOfRange(_))), "{time}");
        }
    }
}
