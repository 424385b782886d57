//! Units and places that come back: noted in the transaction that gives one up, and carried out by a pass.

// The pass that returns them.
pub mod pass;

// Places on users' lists of unpaid orders.
pub mod places;

// Places of dead letters that are discarded.
mod withdrawal;

// The search for live orders that Redis has forgotten.
pub mod forgotten;

// Rows about units and places on their way back.
pub mod stock_returns;
