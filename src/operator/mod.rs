//! What is done over the life of an installation: settled sales leave Redis, old records are deleted, and all that waits
//! for a person is listed.

// Old records are deleted.
pub mod retention;

// Operations: all that waits for an operator.
pub mod operations;

// Settled sales leave Redis.
pub mod archive;
