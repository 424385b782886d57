//! The order log.

// What is read of a log and of its group.
mod reading;

// What the hash of a lane tells.
mod lane_facts;

// Trimming the log.
mod trimming;

// Entries that hold the claims of a call.
mod calls;

// The bound on accepted claims that wait to be written.
mod backlog;

// What the progress of the logs proves about the receipts of a process.
mod receipts;

// Commands that looks at a log cost.
mod costs;
