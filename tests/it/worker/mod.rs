//! The worker: entries become rows, jobs do the rest.

// Entries are written, then acknowledged.
mod writing;

// The worker after a failure.
mod failures;

// Many entries that can't become orders.
mod flood;

// Two owners of a lane at once.
mod overlap;

// Items that a job puts aside.
mod postponed;

// Lanes and their owners.
pub mod owners;

// Lanes without entries.
mod lanes;

// The jobs over the whole installation: started, counted and logged.
mod jobs;
