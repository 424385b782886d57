//! Releases units and places: noted in the transaction that gives them up, carried out by a job.

// The job.
pub mod job;

// Arguments of its scripts.
pub mod places;

// The rows of the table `stock_returns`.
pub mod stock_returns;
