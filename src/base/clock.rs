//! The clock. It is passed in, so that tests can hold it still. Only the verification of tokens reads the system's time
//! elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use chrono::{DateTime, TimeDelta, Utc};

/// Tells the time, from the system or from a test.
///
/// It is used for signatures, for the expiry of tokens that are issued here, and for times that are shown. Times that
/// must be the same for all processes, such as windows and order ids, come from Redis or Postgres.
#[derive(Clone, Debug)]
pub enum Clock {
    System,
    /// Milliseconds since 1970-01-01T00:00:00Z, moved by hand.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands still at `now` until it is [set](Self::set).
    pub fn manual(now: DateTime<Utc>) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(now.timestamp_millis())))
    }

    pub fn now(&self) -> DateTime<Utc> {
        match self {
            Self::System => system_now(),
            Self::Manual(ms) => DateTime::from_timestamp_millis(ms.load(Ordering::SeqCst))
                .expect("a manual clock is only ever set to a valid time"),
        }
    }

    /// Moves a manual clock.
    ///
    /// # Panics
    ///
    /// On the system's clock, which can't be moved from here.
    pub fn set(&self, now: DateTime<Utc>) {
        match self {
            Self::System => panic!("the system's clock can't be set"),
            Self::Manual(ms) => ms.store(now.timestamp_millis(), Ordering::SeqCst),
        }
    }
}

/// How far another clock is ahead of this one. The other was read between `before` and `after` of this one.
pub fn apart(before: DateTime<Utc>, read: DateTime<Utc>, after: DateTime<Utc>) -> TimeDelta {
    read - read.clamp(before, after.max(before))
}

#[expect(clippy::disallowed_methods, reason = "the one place that may ask")]
fn system_now() -> DateTime<Utc> {
    Utc::now()
}
