//! Claims. One call of a script decides on each, without Postgres; only claims on regular coupons, and rare replies,
//! need it.

// Takes claims.
pub mod claims;

// Calls of the claim script, each for many claims on one coupon.
pub mod calls;

// Claims that wait for the next call.
pub mod queue;

// Shards of sales, as calls have learned them.
pub mod known_shards;

// Claims on regular coupons.
pub mod regular;

// Status of a claim.
pub mod status;

// Whether a process can take claims.
pub mod readiness;

// What a process remembers of sales.
pub mod memory;

// Replies of the script, and answers to users.
pub mod outcome;

// One claim, followed through this process.
pub mod trace;
