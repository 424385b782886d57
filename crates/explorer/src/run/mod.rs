//! One run: an installation is started, used, broken and healed; then its facts are collected.

// A run from beginning to end.
mod drive;

// The end of all damage, and the wait for rest.
mod heal;

// Faults of the server of Redis: its process and its files.
mod redis_faults;

// Stores that don't belong together.
mod stores_apart;

// Faults, caused.
mod breaker;

// Looks at sales while the run goes on.
mod watch;

// Contents of both stores.
mod collect;

pub use drive::{Outcome, run};
