//! Tables: each of many similar places, with its expected result.

// Operations by role, and actions by state.
mod permissions;

// Scripts by state of their lane.
mod fence;

// Statements and their indexes.
mod plans;
