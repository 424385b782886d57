//! Settled sales leave Redis.

// Archiving by the worker.
mod settled;

// Archiving by an operator.
mod asked;

// The steps of a job, one by one.
