//! The time of a run.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use flash_sale::base::clock::Clock;

use crate::facts::Ms;

/// Counts the milliseconds of a run.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    began: Instant,
    /// The machine's clock at the beginning.
    began_at: DateTime<Utc>,
}

impl Stopwatch {
    /// Begins now.
    pub fn start() -> Self {
        Self { began: Instant::now(), began_at: Clock::System.now() }
    }

    /// Milliseconds since the beginning.
    pub fn now(&self) -> Ms {
        Ms::try_from(self.began.elapsed().as_millis()).unwrap_or(Ms::MAX)
    }

    /// Milliseconds from the beginning to a time that Postgres has noted in milliseconds since 1970.
    pub fn of_epoch_ms(&self, epoch_ms: i64) -> Ms {
        epoch_ms - self.began_at.timestamp_millis()
    }

    /// Waits until this many milliseconds have passed since the beginning.
    pub async fn reaches(&self, ms: u32) {
        let at = self.began + Duration::from_millis(u64::from(ms));
        tokio::time::sleep_until(at.into()).await;
    }
}
