//! The checker: proves the invariants from the facts of a run. Pure functions, without a store or a clock.
//!
//! # What is excused
//!
//! A loss of data in Redis may cost a promise in one case only: the process that promised it has ended, too, before it
//! could hand in its receipt ([`excuse`]). Such promises are counted and printed, never passed over.
//!
//! A promise may be a dead letter only if its unit can have been given to another user: after a loss of data, by a Redis
//! that went on selling from older data, or because a process could not hand in what it had promised. Otherwise each
//! letter with an order of ours is a broken promise.

// Invariants about stock and buyers: I1 to I4, I8.
mod units;

// Invariants about promises and rows: I5 to I7.
mod promises;

// Invariants about the order log: I9, I10.
mod log;

// The invariant about "sold out": I11.
mod sold_out;

// Promises that a loss may have cost.
mod excuse;

pub use units::conserved;

use std::collections::BTreeSet;
use std::fmt;

use crate::facts::Evidence;

/// Order ids of entries that were appended by hand lie below this; the service's lie far above.
pub const POISON_ORDERS_MAX: i64 = 1_000_000_000_000;

/// A broken invariant, with the ids that show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Name of the invariant: `I1` to `I11`, or `rest` for a service that did not come to rest.
    pub invariant: &'static str,
    /// The ids.
    pub detail: String,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Broken invariants.
    pub broken: Vec<Broken>,
    /// Promises lost with Redis and the process that promised them.
    pub lost_with_process: Vec<String>,
    /// Promises that a recovery reported as superseded.
    pub superseded: usize,
    /// Promises that are open dead letters.
    pub letters: usize,
}

impl Verdict {
    /// Whether all invariants hold.
    pub fn holds(&self) -> bool {
        self.broken.is_empty()
    }

    /// Names of the broken invariants, each once.
    pub fn names(&self) -> Vec<&'static str> {
        let names: BTreeSet<&str> = self.broken.iter().map(|broken| broken.invariant).collect();
        names.into_iter().collect()
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is broken: {}", self.invariant, self.detail)
    }
}

/// Proves all invariants, or names those that are broken.
pub fn check(evidence: &Evidence) -> Verdict {
    let mut verdict = Verdict::default();
    promises::check(evidence, &mut verdict);
    let broken = &mut verdict.broken;
    units::check(evidence, broken);
    log::check(evidence, broken);
    sold_out::check(evidence, broken);
    let mishaps = evidence.mishaps.iter().chain(&evidence.disagreements);
    broken.extend(mishaps.map(|detail| Broken { invariant: "rest", detail: detail.clone() }));
    verdict.broken.sort_by_key(|broken| broken.invariant);
    verdict
}

#[cfg(test)]
mod tests;
