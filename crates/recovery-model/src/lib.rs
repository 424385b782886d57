#![doc = include_str!("../README.md")]

// Exhaustive search.
pub mod search;

// All steps by name.
pub mod model;

// Faults of processes and of Redis.
mod faults;

// Steps of a recovery.
mod recovery;

// Looks of the keeper.
mod keeper;

// Steps of the API process.
mod api;

// A dead letter that is tried again.
mod retry;

// Steps of the worker.
mod worker;

// Promises of moments.
mod promises;

// The state of all.
mod state;

// Size, guards, weak points and faults.
pub mod settings;
