//! Lists for operators.

// Items that passes have postponed.
pub mod postponed;

// Closures of lanes, and how they ended.
pub mod recoveries;
