//! The last looks at both stores.

use tokio::time::Instant;

use super::in_postgres::InPostgres;
use super::in_redis::InRedis;
use crate::base::limits;
use crate::sale::Failure;

/// Facts of the last looks, and the time that each was made at.
#[derive(Default)]
pub struct Seen {
    /// Of Redis.
    pub redis: Look<InRedis>,
    /// Of Postgres.
    pub postgres: Look<InPostgres>,
}

/// The last facts of a store.
pub struct Look<T> {
    /// The facts of the last look that ended well.
    pub facts: Option<T>,
    /// Time of that look, in ms since 1970, and its moment here.
    at: Option<(i64, Instant)>,
    /// Whether a look has ended, well or not.
    pub is_begun: bool,
    /// Whether the last look failed.
    has_failed: bool,
}

impl<T> Default for Look<T> {
    fn default() -> Self {
        Self { facts: None, at: None, is_begun: false, has_failed: false }
    }
}

impl<T> Look<T> {
    /// Notes the end of a look at this time.
    pub fn note(&mut self, looked: Result<T, Failure>, now_ms: i64) {
        self.is_begun = true;
        self.has_failed = looked.is_err();
        match looked {
            Ok(facts) => (self.facts, self.at) = (Some(facts), Some((now_ms, Instant::now()))),
            Err(error) => tracing::debug!(%error, "a store of the board can't be read"),
        }
    }

    /// Whether the store answers: its last look ended well, not long ago.
    pub fn is_fresh(&self) -> bool {
        !self.has_failed && self.at.is_some_and(|(_, at)| at.elapsed() < limits::BOARD_HEARD_MAX)
    }

    /// Time of the last look that ended well.
    pub fn at_ms(&self) -> Option<i64> {
        self.at.map(|(ms, _)| ms)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use private_servers::testing::bound_this_test;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_look_is_fresh_while_its_store_answers_and_keeps_its_facts_when_it_does_not() {
        bound_this_test();
        let mut look: Look<u8> = Look::default();
        assert_eq!(
            (look.is_begun, look.is_fresh(), look.at_ms(), look.facts),
            (false, false, None, None)
        );
        look.note(Err(Failure::NoReply), 5);
        assert_eq!(
            (look.is_begun, look.is_fresh(), look.at_ms(), look.facts),
            (true, false, None, None)
        );
        look.note(Ok(7), 6);
        assert_eq!(
            (look.is_begun, look.is_fresh(), look.at_ms(), look.facts),
            (true, true, Some(6), Some(7))
        );
        advance(limits::BOARD_HEARD_MAX - Duration::from_millis(1)).await;
        assert!(look.is_fresh());
        advance(Duration::from_millis(1)).await;
        assert!(!look.is_fresh(), "a look that hangs is none");
        look.note(Ok(8), 9);
        assert!(look.is_fresh());
        look.note(Err(Failure::NoReply), 10);
        assert_eq!((look.is_fresh(), look.at_ms(), look.facts), (false, Some(9), Some(8)));
    }
}
