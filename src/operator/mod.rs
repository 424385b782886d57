//! Upkeep of an installation: settled sales leave Redis, old records are deleted, and everything that waits for a
//! person is listed.

// Old records are deleted.
pub mod retention;

// Everything that waits for an operator.
pub mod operations;

// Settled sales leave Redis.
pub mod archive;
