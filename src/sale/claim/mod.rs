//! Claims: one call of a script decides on each. No Postgres in sight.

// Takes claims.
pub mod claims;

// Calls of the claim script, one at a time for each coupon.
pub mod calls;

// Claims that wait for the next call.
pub mod queue;

// Claims of regular coupons.
pub mod regular;

// Status of a claim.
pub mod status;

// Whether a process can take claims.
pub mod readiness;

// News of units that have come back.
pub mod sold_out_listener;

// Memory of sold-out sales.
pub mod sold_out;

// Replies of the script, and answers to users.
pub mod outcome;
