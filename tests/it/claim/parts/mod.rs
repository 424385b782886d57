//! Parts of the way of a claim, each called by itself.

// The buyers of a sale, as Redis has them.
mod buyers;

// Readers of the buyers of sold-out sales.
mod readers;

// Calls of the claim script while Redis is slow.
mod calls;

// Readiness of a process for claims.
mod readiness;

// Statuses of claims.
mod statuses;
