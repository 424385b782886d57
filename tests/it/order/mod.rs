//! Orders, from the row to the end of their life.

// Moves of an order from one status to another.
mod moves;

// The life of orders against a model, one sale at a time.

// Units and orders against a model, with jobs that die half-way.
mod lifecycle_model;

// Orders that the staff moves.
mod staff;

// Orders that are not paid in time.
mod expiry;

// Redemption codes.
mod redemptions;

// Units on their way back to stock.
mod stock_returns;

// Entries that could not become orders.
mod dead_letters;

// Requests that wait for their order.
mod waiters;

// Discarded dead letters: their units come back if they exist.
mod withdrawals;
