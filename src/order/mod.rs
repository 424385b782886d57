//! Orders: the record that an accepted claim becomes, and its life. Owner of the tables `orders`, `dead_letters`,
//! `redemptions` and `stock_returns`.

// Unpaid orders whose time is over.
pub mod expiry;

// Dead letters, for the operator who looks for them and discards them.
pub mod discard;

// Moves of an order from one status to another.
pub mod moves;

// Units and places that come back to Redis.
pub mod give_back;

// Requests that wait until their order is written.
pub mod waiters;

// Queries about orders.
pub mod read;

// Batches of claims become rows.
pub mod write;

// Rows of claims, with their price and deadline.
pub mod insert;

// The bound on orders that are closed to claim anew.
pub mod closed;

// Live orders, and whether Redis knows their buyers.
pub mod live;

// Entries that can't become orders.
pub mod dead_letter;

// An order, and the states of its life.
pub mod model;
