//! The parts of an order id.
//!
//! ```text
//!  0 | 31 bits: seconds since 2022-01-01T00:00:00Z | 6: lane | 6: epoch modulo 64 | 20: counter of the second
//!  0 | 31 bits: seconds since 2022-01-01T00:00:00Z | 6: 63   | 26: a sequence of Postgres
//! ```
//!
//! # Model
//!
//! The claim script makes the ids of a lane's claims (`lua/claim.lua`) from a counter in the lane's hash. Postgres
//! makes the id of a regular coupon's order in its INSERT; no lane has the number 63.
//!
//! # Why ids are unique, and rise
//!
//! The counter is part of Redis's state, like the units that it counts, so no two claims of one state have the same id.
//! The counter restarts only in a later second. When it is full, or the clock was set back, the ids continue in the
//! last second or the next one. A Redis that went back in time is used only after a recovery, which raises the epoch
//! and starts above the seconds of all ids that were seen. A replaced master that still sells has an older epoch. So of
//! two claims of a user on a coupon, the later one has the higher id. Recoveries rely on that.
//!
//! # What is not promised
//!
//! Ids may repeat on a machine that was restored from a snapshot taken while it ran: Redis then keeps its replication
//! ID, and the fence doesn't notice. Stop the service before such a restore.
//!
//! The time in an id is only as exact as Redis's clock. Two ids of the same second and lane reveal how many claims lie
//! between them.

use chrono::{DateTime, Utc};

use super::OrderId;

/// The first second that an id can carry, in seconds since 1970: 2022-01-01T00:00:00Z.
const FIRST_SECOND: i64 = 1_640_995_200;
/// Bits below the seconds.
const SECOND_BITS: u32 = 32;
/// The last second that an id can carry, in 2090.
const SECONDS_MAX: i64 = (1 << 31) - 1;

impl OrderId {
    pub fn second(self) -> i64 {
        self.0 >> SECOND_BITS
    }

    /// The time in the id, in whole seconds.
    pub fn time(self) -> DateTime<Utc> {
        time_of(self.0)
    }

    /// This id and the ids after it, as the claims of one call get them.
    pub fn following(self) -> impl Iterator<Item = Self> {
        (self.0..=i64::MAX).map(Self)
    }
}

/// The lowest id with this time.
pub fn first_at(time: DateTime<Utc>) -> i64 {
    second_at(time) << SECOND_BITS
}

/// The seconds from 2022 to this time, clamped to what an id can carry.
pub fn second_at(time: DateTime<Utc>) -> i64 {
    (time.timestamp() - FIRST_SECOND).clamp(0, SECONDS_MAX)
}

/// The time in an id, in whole seconds.
pub fn time_of(id: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(FIRST_SECOND + (id >> SECOND_BITS), 0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_times_meet_at_the_bounds() {
        let last = FIRST_SECOND + SECONDS_MAX;
        let second = |seconds| DateTime::from_timestamp(seconds, 0).expect("a valid time");
        for (seconds, id) in [
            (0, 0),
            (FIRST_SECOND - 1, 0),
            (FIRST_SECOND, 0),
            (FIRST_SECOND + 1, 1 << 32),
            (last - 1, ((1 << 31) - 2) << 32),
            (last, ((1 << 31) - 1) << 32),
            (last + 1, ((1 << 31) - 1) << 32),
        ] {
            assert_eq!(first_at(second(seconds)), id, "{seconds}");
        }
        for (id, seconds) in [
            (0, FIRST_SECOND),
            ((1 << 32) - 1, FIRST_SECOND),
            (1 << 32, FIRST_SECOND + 1),
            (i64::MAX, last),
        ] {
            assert_eq!(time_of(id), second(seconds), "{id}");
        }
        assert_eq!(time_of(0).to_rfc3339(), "2022-01-01T00:00:00+00:00");
    }

    #[test]
    fn ids_follow_each_other_up_to_the_last_one() {
        let id = |number| OrderId::new(number).expect("an id");
        let following = |first| id(first).following().take(2).map(OrderId::get).collect::<Vec<_>>();
        assert_eq!(following((7 << 32) + 5), [(7 << 32) + 5, (7 << 32) + 6]);
        assert_eq!(following(i64::MAX), [i64::MAX]);
        assert_eq!((id((7 << 32) + 5).second(), id(i64::MAX).second()), (7, SECONDS_MAX));
    }
}
