//! The plan of a run: a pure function of its seed.
//!
//! A plan says all that is decided before a run begins: servers, sales, clients, deeds of the operator, and the schedule
//! of faults. The order in which processes, clients and faults really come to their turn is not decided by the seed:
//! the machine decides that. So a seed repeats what is tried, and not each interleaving.

// Plans from seeds.
mod generate;

// The parts of a plan.
mod schedule;

// Faults, and what each breaks.
mod fault;

pub use fault::{APIS, Fault, Ground, Need, PROCESSES};
pub use generate::generate;
pub use schedule::{Act, Deed, DeedAt, Plan, Sync, process_name};
