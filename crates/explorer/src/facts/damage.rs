//! Damage done on purpose, and the lives of processes.

use super::unit::Ms;
use crate::plan::Fault;

/// Redis lost data, because a fault made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    pub fault: Fault,
    /// All that Redis had been told by then is still there.
    pub kept_until: Ms,
    /// Time from which on no claim was carried out on the newer data.
    pub lost_at: Ms,
    /// A time before the first claim that was carried out on the older data.
    pub back_at: Ms,
    /// True for a Redis that went on with the same life and its keys, so that claims are answered from the older data until the
    /// lanes are closed.
    pub sells_on: bool,
    /// True for older data that are a replica's.
    pub is_of_replica: bool,
}

impl Loss {
    /// A loss after which Redis sells on only once it is up again, with its own data.
    pub fn new(fault: Fault, kept_until: Ms, (lost_at, back_at): (Ms, Ms)) -> Self {
        Self { fault, kept_until, lost_at, back_at, sells_on: false, is_of_replica: false }
    }
}

/// The life of a process, from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// Place of the process.
    pub place: usize,
    /// Number of the life at that place, from 0.
    pub number: usize,
    /// Time of the start.
    pub started: Ms,
    /// Time of the end, by a kill or otherwise; `None` while it lives.
    pub ended: Option<Ms>,
}

/// A process lived, and could not hand in what it had promised: paused, or cut off from a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Place of the process.
    pub place: usize,
    /// Beginning.
    pub from: Ms,
    /// End.
    pub to: Ms,
}
