//! Lists for operators, and statistics.

// Changes that the staff has made.
pub mod audit;

// Dead letters, their retry and their discard.
pub mod dead_letters;

// All that waits for an operator.
pub mod operations;

// Orders that are moved for their buyers, and jobs.
pub mod orders;

// Payments that wait, and their end.
pub mod payments;

// Items that passes have postponed.
pub mod postponed;

// Statistics of a day.
pub mod statistics;

// Closures of lanes, and how they ended.
pub mod recoveries;

// Output of a list.
mod output;
