//! Settled sales leave Redis.

// Archiving by the worker.
mod settled;

// Archiving by an operator.
mod asked;

// The request of an operator, step by step.
mod asked_now;

// The steps of a pass, one by one.
mod passes;
