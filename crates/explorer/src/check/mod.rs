//! The checker: proves the invariants from the facts of a run. Pure functions, without a store or a clock.
//!
//! # What is excused
//!
//! A loss of data in Redis may cost a promise in one case only: the process that promised it has ended, too, before it
//! could hand in its unwritten claim (`excuse.rs`). Such promises are counted and printed, never passed over. The
//! comparison of the service may miss as many.
//!
//! A promise may be a dead letter only if its unit can have been given to another user: after a loss of data, by a
//! Redis that went on selling from older data, or because a process could not hand in what it had promised. Otherwise
//! each letter with an order of ours is a broken promise.

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

// The result of a check.
mod verdict;

pub use units::conserved;
pub use verdict::{Broken, POISON_ORDERS_MAX, Verdict};

use crate::facts::Evidence;

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
