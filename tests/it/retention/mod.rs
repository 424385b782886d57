//! Data that goes: a user's, on request, and old orders and records by themselves.

// Orders that are over move into the history.
pub mod history;

// A user's data, handed out and erased.
pub mod persons;

// Records after their time.
mod records;

// Months of the history.
mod months;

// What is under way, and keeps a user from being erased.
mod obstacles;

// Rounds through the orders, and the numbers that are shown of them.
mod rounds;

// Bounds of statements and locks.
mod bounds;

// What Redis and the history have of a user.
mod elsewhere;
