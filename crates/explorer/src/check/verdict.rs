//! The result of a check.

use std::collections::BTreeSet;
use std::fmt;

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
    /// True when all invariants hold.
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
