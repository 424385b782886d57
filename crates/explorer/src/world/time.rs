//! The time of a run.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use flash_sale::base::clock::Clock;

use crate::facts::Ms;

/// Counts the milliseconds of a run.
#[derive(Clone, Debug)]
pub struct Stopwatch(Arc<Mutex<Beginning>>);

#[derive(Clone, Copy, Debug)]
struct Beginning {
    at: Instant,
    /// The machine's clock then.
    clock: DateTime<Utc>,
}

impl Beginning {
    fn now() -> Self {
        Self { at: Instant::now(), clock: Clock::System.now() }
    }
}

impl Stopwatch {
    /// Begins now.
    pub fn start() -> Self {
        Self(Arc::new(Mutex::new(Beginning::now())))
    }

    /// Begins anew: the installation is up, and the run begins.
    pub fn restart(&self) {
        *self.0.lock().expect("no holder of this lock panics") = Beginning::now();
    }

    fn began(&self) -> Beginning {
        *self.0.lock().expect("no holder of this lock panics")
    }

    /// Milliseconds since the beginning.
    pub fn now(&self) -> Ms {
        Ms::try_from(self.began().at.elapsed().as_millis()).unwrap_or(Ms::MAX)
    }

    /// Milliseconds from the beginning to a time that Postgres has noted in milliseconds since 1970.
    pub fn of_epoch_ms(&self, epoch_ms: i64) -> Ms {
        epoch_ms - self.began().clock.timestamp_millis()
    }

    /// Waits until this many milliseconds have passed since the beginning.
    pub async fn reaches(&self, ms: u32) {
        let at = self.began().at + Duration::from_millis(u64::from(ms));
        tokio::time::sleep_until(at.into()).await;
    }
}
