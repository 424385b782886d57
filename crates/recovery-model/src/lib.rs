//! A model of the fence and the recovery: Redis sells, Postgres approves the Redis that sells, and both may fail or go
//! back in time. It uses nothing of the service. A search looks at every order in which the steps can happen.
//!
//! A step is a function that changes the state, or says `None` where it isn't possible. The numbers of rules in these
//! files are those of the README, which has the rules in words.

// The search.
pub mod search;

// All steps by name.
mod model;

// What must hold.
mod promises;

// Faults.
mod faults;

// Closing, and the recovery (rules 4 to 6, 10 to 15, and 19).
mod recovery;

// A sale is loaded, archived and deleted (rules 2 and 17).
mod sale;

// What users and operators do to orders and dead letters (rules 7 and 14).
mod people;

// The order log becomes orders, and units come back (rules 7, 11 and 16).
mod worker;

// Claims and unwritten claims (rules 2, 3, 8 and 9).
mod api;

// Both stores, the processes, and what an onlooker remembers.
mod state;

// The size of a model, its faults, and its guards.
pub mod settings;
