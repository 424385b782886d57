//! Time that the workers have to write the order log of a lane that is recovering.

use tokio::time::Instant;

use crate::base::limits;
use crate::sale::log::LogState;

/// Patience with the log of a lane: as long as something moves in it, and for [`limits::RECOVERY_LOG_MAX`] at most.
pub(super) struct LogPatience {
    ends: Instant,
    moved_at: Instant,
    last: Option<LogState>,
}

impl LogPatience {
    pub(super) fn begin(now: Instant) -> Self {
        Self { ends: now + limits::RECOVERY_LOG_MAX, moved_at: now, last: None }
    }

    /// Notes a look at the log. True if there is no use in another one.
    pub(super) fn is_over(&mut self, state: LogState, now: Instant) -> bool {
        if self.last != Some(state) {
            (self.moved_at, self.last) = (now, Some(state));
        }
        now >= self.moved_at + limits::RECOVERY_LOG_STILL || now >= self.ends
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);
    const STILL: Duration = limits::RECOVERY_LOG_STILL;

    /// Looks at these times, with so many orders written then.
    fn looks<const N: usize>(looks: [(Duration, u64); N]) -> [bool; N] {
        let began = Instant::now();
        let mut patience = LogPatience::begin(began);
        looks.map(|(after, written)| {
            let state = LogState { written, ..LogState::default() };
            patience.is_over(state, began + after)
        })
    }

    #[test]
    fn a_log_in_which_nothing_moves_is_given_up_after_two_seconds() {
        let times = [(MOMENT, 5), (STILL, 5), (STILL + MOMENT, 5)];
        assert_eq!(looks(times), [false, false, true]);
        let moved = [(MOMENT, 5), (STILL, 6), (2 * STILL - MOMENT, 6), (2 * STILL, 6)];
        assert_eq!(looks(moved), [false, false, false, true]);
    }

    #[test]
    fn a_log_that_moves_is_given_up_after_a_minute() {
        let most = limits::RECOVERY_LOG_MAX;
        assert_eq!(looks([(most - MOMENT, 5), (most, 6)]), [false, true]);
    }
}
