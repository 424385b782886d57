//! The order log.

// Trimming the log.
mod trimming;

// The bound on accepted claims that wait to be written.
mod backlog;

// What the progress of the logs proves about the unwritten claims of a process.
mod unwritten;
