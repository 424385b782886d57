//! The order log.

// Trimming the log and removing consumers.
mod trimming;

// The bound on accepted claims that wait to be written.
mod backlog;
