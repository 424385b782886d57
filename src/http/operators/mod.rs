//! For the staff: all that waits for a person, dead letters, payments that wait, postponed items, recoveries, comparisons
//! of the stores, and the book of changes.

// All that waits for an operator, in one list.
pub mod waiting;

// The board, as a stream of events.
pub mod board;

// Dead letters, and their discard.
pub mod dead_letters;

// Payments that no order has, or that go back.
pub mod payments;

// Items that passes could not deal with.
pub mod postponed;

// Recoveries of lanes.
pub mod recoveries;

// Comparisons of the stores, and their records.
pub mod reconcile;

// Changes that the staff has made.
pub mod audit;
