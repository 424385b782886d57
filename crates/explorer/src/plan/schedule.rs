//! The parts of a plan.

use std::fmt;

use super::fault::{APIS, Fault, Ground};

/// When Redis syncs its append-only file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Before each reply.
    Always,
    /// Once a second.
    EverySecond,
}

/// A change of a sale by the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// So many units more, by restocking.
    Restock(i64),
    /// So many units more, by an edit.
    Raise(i64),
    /// Another title.
    Title,
    /// A pause, and its end after so many milliseconds.
    Pause(u32),
}

/// A change at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeedAt {
    /// Milliseconds from the beginning.
    pub at_ms: u32,
    /// Index of the sale.
    pub sale: usize,
    /// The change.
    pub deed: Deed,
}

/// A fault at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    pub fault: Fault,
    /// Milliseconds from the beginning of the run to that of the fault.
    pub begin_ms: u32,
    /// Milliseconds from the beginning of the run to the end of the fault.
    pub end_ms: u32,
    /// Place of the process that the fault is about, where there is one.
    pub place: usize,
}

/// All that is decided before a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    /// When Redis syncs its file.
    pub sync: Sync,
    /// True if claims are confirmed once the replica has them.
    pub is_replicated: bool,
    /// Units on offer at the beginning, of each sale.
    pub sales: Vec<i64>,
    /// Clients at work at one time.
    pub clients: usize,
    /// Users of each client.
    pub users: usize,
    /// Mean pause of a client between two requests, in milliseconds.
    pub pause_ms: u32,
    /// Time for which an order may stay unpaid, in seconds.
    pub payment_window_s: u32,
    /// Time in which faults begin and end, in milliseconds.
    pub duration_ms: u32,
    /// Changes by the operator, by time.
    pub deeds: Vec<DeedAt>,
    /// Faults, by the time of their beginning.
    pub acts: Vec<Act>,
}

impl Plan {
    /// Leaves out the faults with these indices, and works with so many clients at most.
    #[must_use]
    pub fn without(mut self, acts: &[usize], clients: Option<usize>) -> Self {
        let mut index = 0..;
        self.acts.retain(|_| index.next().is_some_and(|index| !acts.contains(&index)));
        self.clients = clients.unwrap_or(self.clients).min(self.clients);
        self
    }

    /// A larger crowd: so many times the clients, with their users, and so many times the units of each sale, so that a
    /// unit is asked for as often. Deeds and faults stay as they are.
    #[must_use]
    pub fn times(mut self, crowd: usize) -> Self {
        self.clients *= crowd;
        for total in &mut self.sales {
            *total *= i64::try_from(crowd).unwrap_or(i64::MAX);
        }
        self
    }

    /// Names of the faults, each once.
    pub fn faults(&self) -> Vec<String> {
        let mut names: Vec<String> = self.acts.iter().map(|act| act.fault.name()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sync = if self.sync == Sync::Always { "always" } else { "everysec" };
        let replicated = if self.is_replicated { ", durability replica" } else { "" };
        let totals: Vec<String> = self.sales.iter().map(i64::to_string).collect();
        writeln!(
            f,
            "seed {}: appendfsync {sync}{replicated}, sales of {} units",
            self.seed,
            totals.join(", ")
        )?;
        writeln!(
            f,
            "  {} clients with {} users each, a request about every {} ms; unpaid orders expire after {} s; {} ms",
            self.clients, self.users, self.pause_ms, self.payment_window_s, self.duration_ms
        )?;
        for DeedAt { at_ms, sale, deed } in &self.deeds {
            writeln!(f, "  at {at_ms:>5} ms: sale {sale}: {deed:?}")?;
        }
        for (index, Act { fault, begin_ms, end_ms, place }) in self.acts.iter().enumerate() {
            let place = match fault.ground(*place) {
                Ground::Process(place)
                | Ground::WayToRedis(place)
                | Ground::WayToPostgres(place) => {
                    format!(" of {}", process_name(place))
                }
                _ if *fault == Fault::ServiceClock => format!(" of {}", process_name(*place)),
                _ => String::new(),
            };
            let time = match fault.is_instant() {
                true => format!("at {begin_ms:>5} ms"),
                false => format!("from {begin_ms:>5} to {end_ms:>5} ms"),
            };
            writeln!(f, "  [{index}] {time}: {fault}{place}")?;
        }
        Ok(())
    }
}

/// Name of the process at a place: `api-0`, `worker-1`.
pub fn process_name(place: usize) -> String {
    match place.checked_sub(APIS) {
        Some(worker) => format!("worker-{worker}"),
        None => format!("api-{place}"),
    }
}
