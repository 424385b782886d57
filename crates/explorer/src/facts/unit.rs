//! The unit of times.

/// Milliseconds from the beginning of the run.
pub type Ms = i64;
