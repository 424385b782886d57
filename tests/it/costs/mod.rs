//! Costs, counted in rows, calls and seconds.

// Plans of the queries on 300,000 rows.
pub mod plans;

// The same by plans that were made while the tables were empty.
mod early;

// The queries, and what each may read.
mod queries;

// Savings and cost of the buyers' locks, measured by hand.
mod locks;

// Times in which the service is well again after a fault.
mod healing;

// One bad item in front of many good ones, for each pass.
mod one_bad;

// A long outage of Postgres, and the backlog after it.
mod backlog;

// Costs that are measured by hand.
mod by_hand;

// A database with the orders of a year.
mod grown;
