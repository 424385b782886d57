//! When each request is due, and from when its latency counts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

/// The pace at which requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// A connection that is free. Finds limits; says nothing about latency.
    Closed,
    /// The clock: this many a second, evenly, whether the service keeps up or not.
    Open { per_second: f64 },
    /// As fast as connections are free, until so many are sent.
    All { requests: u64 },
}

/// Shorter waits would only cost the client CPU time.
const TICK_MIN: Duration = Duration::from_micros(100);

impl Pace {
    /// When a request is due after the start; `None`: as soon as a connection is free.
    pub fn due(self, index: u64) -> Option<Duration> {
        match self {
            Self::Closed => None,
            Self::Open { per_second } => Some(Duration::from_secs_f64(index as f64 / per_second)),
            Self::All { .. } => Some(Duration::ZERO),
        }
    }

    /// Requests that are due within this time; `None` in a closed loop.
    pub fn due_within(self, elapsed: Duration) -> Option<u64> {
        match self {
            Self::Closed => None,
            Self::Open { per_second } => Some((elapsed.as_secs_f64() * per_second).ceil() as u64),
            Self::All { requests } => Some(requests),
        }
    }

    /// Latency of a request: from the moment when it was *due* to its answer. Counted from its sending, a stall of the
    /// service would hide behind the requests that it kept from being sent (coordinated omission).
    pub fn latency(self, index: u64, sent: Duration, answered: Duration) -> Duration {
        answered.saturating_sub(self.due(index).unwrap_or(sent))
    }
}

/// Releases requests when they are due, one permit each, until `total` are released or the load is stopped.
///
/// Blocks its thread: the runtime's own timer is rounded to whole milliseconds, longer than most requests take.
pub fn release_when_due(
    pace: Pace,
    start: Instant,
    total: u64,
    due: &Semaphore,
    stopped: &AtomicBool,
) {
    let mut released = 0;
    while released < total && !stopped.load(Ordering::Relaxed) {
        let due_now = pace.due_within(start.elapsed()).unwrap_or(total).min(total);
        due.add_permits(usize::try_from(due_now - released).unwrap_or(0));
        released = due_now;
        let next = pace.due(released).unwrap_or_default();
        std::thread::sleep(next.saturating_sub(start.elapsed()).max(TICK_MIN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn requests_are_due_evenly_and_never_before_the_start() {
        let pace = Pace::Open { per_second: 200.0 };
        assert_eq!(pace.due(0), Some(Duration::ZERO));
        assert_eq!(pace.due(3), Some(ms(15)));
        assert_eq!(pace.due_within(Duration::ZERO), Some(0));
        assert_eq!(pace.due_within(ms(1)), Some(1));
        assert_eq!(pace.due_within(ms(1_000)), Some(200));
        assert_eq!(Pace::Closed.due(3), None);
        assert_eq!(Pace::All { requests: 9 }.due_within(ms(1)), Some(9));
    }

    /// One connection; the service takes 1 ms, and once a whole second.
    fn latencies_around_a_stall(pace: Pace) -> Vec<Duration> {
        let mut free = Duration::ZERO;
        let mut latencies = Vec::new();
        for index in 0..1_000 {
            let sent = pace.due(index).unwrap_or(free).max(free);
            let took = if index == 300 { ms(1_000) } else { ms(1) };
            free = sent + took;
            latencies.push(pace.latency(index, sent, free));
        }
        latencies.sort();
        latencies
    }

    #[test]
    fn a_stall_shows_in_the_latency_of_everybody_who_was_due_meanwhile() {
        let open = latencies_around_a_stall(Pace::Open { per_second: 500.0 });
        // Due every 2 ms, so 500 were due during the stall, and the queue behind it takes as long again to go away.
        assert!(open[500] > ms(300), "the median is {:?}", open[500]);
        assert!(open[900] > ms(900), "{:?}", open[900]);
        let closed = latencies_around_a_stall(Pace::Closed);
        assert_eq!(closed[998], ms(1), "a closed loop sees one slow request in a thousand");
    }

    #[test]
    fn what_is_due_is_released_and_no_more() {
        let due = Semaphore::new(0);
        let pace = Pace::Open { per_second: 10_000.0 };
        let start = Instant::now();
        release_when_due(pace, start, 100, &due, &AtomicBool::new(false));
        assert_eq!(due.available_permits(), 100);
        assert!(start.elapsed() >= ms(9), "{:?}", start.elapsed());
    }
}
