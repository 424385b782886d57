//! Orders: what an accepted claim becomes, from its row to its end. Owns the tables `orders`, `dead_letters`,
//! `redemptions` and `stock_returns`.

// The job that closes overdue unpaid orders.
pub mod expiry;

// Reads and discards dead letters for an operator.
pub mod discard;

// Moves an order from one status to the next.
pub mod moves;

// Returns units, and places on lists of unpaid orders, to Redis.
pub mod release;

// Requests that wait until their order is written.
pub mod waiters;

// Queries about orders.
pub mod read;

// Writes batches of claims.
pub mod write;

// Inserts rows of claims, with price and deadline.
pub mod insert;

// Limits how many orders a user may close and claim again.
pub mod closed;

// Live orders, and orders by their ids.
pub mod live;

// Claims that can't become orders.
pub mod dead_letter;

// An order and its statuses.
pub mod model;
