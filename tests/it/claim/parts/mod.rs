//! Parts of the way of a claim, each called by itself.

// The buyers of a sale, as Redis has them.
mod buyers;

// Readers of the buyers of sold-out sales.
mod readers;

// Calls of the claim script while Redis is slow.
mod calls;

// The same with a script whose replies are played.
mod played_calls;

// Claims whose replies are played.
mod played_claims;

// Listening to units that come back.
mod listening;

// Readiness of a process for claims.
mod readiness;

// Statuses of claims.
mod statuses;
