//! Counts and times that this process can read back, for the board. The handles of the metrics crate can only be
//! written.
//!
//! A time is counted in one of four buckets per power of two of microseconds, so a quantile is at most a quarter too
//! large.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of times. The last one has all times of more than half an hour.
const BUCKETS: usize = 116;

/// Counts of a process since its start.
#[derive(Default)]
pub struct Tally {
    /// Answered requests, of all routes.
    pub requests: Count,
    /// Opened connections, and closed connections.
    pub connections: (Count, Count),
    /// Rows that the worker has written.
    pub rows: Count,
    /// Times from request head to reply head, of the busiest route.
    pub answers: Times,
    /// Times from a reply that accepted a claim to its row.
    pub to_rows: Times,
}

#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    pub fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

pub struct Times([Count; BUCKETS]);

/// Counts by bucket, without empty buckets.
pub type Counts = BTreeMap<usize, u64>;

impl Default for Times {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Count::default()))
    }
}

impl Times {
    /// Counts `count` events that took this long.
    pub fn record(&self, took: Duration, count: usize) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.0[bucket(micros)].add(count);
    }

    pub fn counts(&self) -> Counts {
        let counts = self.0.iter().map(Count::get).enumerate();
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

/// Time in ms within which this share of the events were done; `None` without events.
pub fn quantile_ms(counts: &Counts, share: f64) -> Option<f64> {
    let wanted = counts.values().sum::<u64>() as f64 * share;
    let mut below = 0;
    let reached = |(bucket, count): (&usize, &u64)| {
        below += count;
        (below as f64 >= wanted).then(|| micros_at_most(*bucket) as f64 / 1_000.0)
    };
    counts.iter().find_map(reached)
}

fn bucket(micros: u64) -> usize {
    let micros = micros.max(4);
    let power = micros.ilog2() as usize;
    let quarter = (micros >> (power - 2)) & 3;
    ((power - 2) * 4 + quarter as usize).min(BUCKETS - 1)
}

fn micros_at_most(bucket: usize) -> u64 {
    (4 + bucket as u64 % 4 + 1) << (bucket / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_a_quarter_wide_at_most() {
        for micros in [4, 5, 7, 8, 100, 1_000, 7_400, 999_999, 61_000_000] {
            let most = micros_at_most(bucket(micros));
            assert!(micros < most && most * 4 <= micros * 5 + 4, "{micros} {most}");
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn a_quantile_is_the_time_within_which_so_many_were_done() {
        let times = Times::default();
        assert_eq!(quantile_ms(&times.counts(), 0.99), None);
        times.record(Duration::from_millis(1), 98);
        times.record(Duration::from_millis(400), 2);
        let at = |share| quantile_ms(&times.counts(), share).expect("there are some");
        assert!((1.0..1.3).contains(&at(0.5)), "{}", at(0.5));
        assert!((400.0..500.0).contains(&at(0.99)), "{}", at(0.99));
    }
}
