//! Faults of the whole service.

// Processes that are killed.
mod kills;

// Processes that are paused, or stopped in mid-work.
pub mod processes;

// A Redis that lost data, and comes back by itself.
pub mod recovery;

// Attacks on the fence and the recovery.
mod attacks;

// Rolling restarts under load.
mod restart;

// Stores that are killed, hung or emptied under load.
mod stores;

// Stores that hang or die, and come back.
mod outage;

// Another server behind the same address.
pub mod failover;

// The levels of durability.
mod durability;

// A Redis that goes back in time.
mod roll_back;

// A clock of Redis that is set back.
mod clocks;

// Stores that don't belong together.
mod apart;

// A Redis that can't keep what is promised.
mod promises;

// Sessions of Postgres that can't do their work.
mod sessions;
