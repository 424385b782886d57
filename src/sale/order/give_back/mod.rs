//! Units and places that come back: noted in the transaction that gives one up, and carried out by a pass.

// The pass that gives them back.
pub mod pass;

// Places of dead letters that are discarded.
mod withdrawal;

// Rows about what has to come back.
pub mod stock_returns;
