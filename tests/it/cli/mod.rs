//! The command line.

// Output, refusals and exit codes of each sub-command.
mod command_line;

// The output of `flash-sale demo`.
mod demo;

// The findings of `flash-sale doctor`.
mod doctor;

// Settings in the environment, and secrets in files.
mod environment;

// Private servers of one's own.
pub mod private_servers;

// The least rights in both stores.
mod rights;
