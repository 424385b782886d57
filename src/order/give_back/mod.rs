//! Units and places that come back: noted in the transaction that gives one up, and carried out by a pass.

// The pass that returns them.
pub mod pass;

// Places on users' lists of unpaid orders.
pub mod places;

// Rows about units and places on their way back.
pub mod stock_returns;
