//! Lists for operators.

// Changes that the staff has made.
pub mod audit;

// Dead letters, and their retry.
pub mod dead_letters;

// Payments that wait, and their end.
pub mod payments;

// Items that passes have postponed.
pub mod postponed;

// Closures of lanes, and how they ended.
pub mod recoveries;

// Output of a list.
mod output;
