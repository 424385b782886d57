//! Claims: one call of a script decides on each. No Postgres in sight.

// Takes claims.
pub mod claims;

// Calls of the claim script, one at a time for each coupon.
pub mod calls;

// Claims that wait for the next call.
pub mod queue;

// Shards of sales, as calls have learned them.
pub mod known_shards;

// Claims of regular coupons.
pub mod regular;

// Status of a claim.
pub mod status;

// Whether a process can take claims.
pub mod readiness;

// Memories of a process about sales.
pub mod memory;

// Replies of the script, and answers to users.
pub mod outcome;

// One claim, followed through this process.
pub mod trace;
