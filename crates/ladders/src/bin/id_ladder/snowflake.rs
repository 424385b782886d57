//! Snowflake: 41 bits of milliseconds, 10 of a machine's number, 12 of a count within the millisecond.

use std::sync::Mutex;

use chrono::{DateTime, Utc};

const MACHINE_BITS: u32 = 10;
const COUNT_BITS: u32 = 12;
/// 2022-01-01T00:00:00Z.
const EPOCH_MS: i64 = 1_640_995_200_000;

/// Behaviour when the clock shows less than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenSetBack {
    GoOn,
    Wait,
}

pub struct Snowflake {
    machine: i64,
    when_set_back: WhenSetBack,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    ms: i64,
    count: i64,
}

impl Snowflake {
    pub fn new(machine: i64, when_set_back: WhenSetBack) -> Self {
        Self { machine, when_set_back, last: Mutex::default() }
    }

    /// The next id; none while the generator waits, for the clock or for the next millisecond.
    pub fn next(&self, now: DateTime<Utc>) -> Option<i64> {
        let mut last = self.last.lock().expect("no holder of this lock panics");
        let ms = now.timestamp_millis() - EPOCH_MS;
        if ms < last.ms && self.when_set_back == WhenSetBack::Wait {
            return None;
        }
        let count = if ms == last.ms { last.count + 1 } else { 0 };
        if count >> COUNT_BITS > 0 {
            return None;
        }
        *last = Last { ms, count };
        Some(ms << (MACHINE_BITS + COUNT_BITS) | self.machine << COUNT_BITS | count)
    }
}
