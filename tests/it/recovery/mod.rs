//! Recoveries: what a closed lane answers, and what each recovery builds, reports and has compared.

// Claims of users in a closed lane.
mod claims_me;

// A closed lane beside an open one.
mod closed_lane;

// The lists of unpaid orders.
mod unpaid_lists;

// A comparison that closes a lane.
mod compared;

// The record, the log line and the metrics.
mod reported;

// A lane whose order log is gone.
mod lost_log;

// Recoveries that are broken off, and a memory of Redis that goes back.
pub mod rolled_back;
