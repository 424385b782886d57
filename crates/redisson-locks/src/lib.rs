#![doc = include_str!("../README.md")]
#![warn(missing_docs, missing_debug_implementations, clippy::unwrap_used)]
#![forbid(unsafe_code)]

//!
//! # Model
//!
//! A lock is a key that names its holder and expires after its *lease*. Whoever creates the key holds the lock. The
//! holder renews the lease at a third of its length, and every change is a script that acts only if the key still names
//! the holder.
//!
//! # Authority
//!
//! Redis decides who holds a lock. The local monotonic clock is trusted for one thing: when the holder can no longer be
//! *sure*, counted from before the last renewal was sent. At that moment the guard's token is cancelled, whether Redis
//! answers or not.
//!
//! # Effect of each failure
//!
//! * The holder dies: the lease ends, and the next holder gets the lock.
//! * The holder is paused past its lease: by then another holder may have the lock. The paused holder is told when it
//!   runs again, but it can't take back a write that was already sent. With a fencing token, the resource can reject
//!   that write.
//! * Redis is down: no lock is taken, and holders are told in time that they can't be sure.
//! * Redis loses data (a restart without its data, a fail-over): two holders may have one lock.

// The map, in reading order: each module uses only modules below it.

#[cfg(feature = "redlock")]
pub mod redlock;

pub mod owner;

mod watchdog;

mod reentrant;

mod script;

// A server for subscriptions, in a test's memory.
#[cfg(test)]
mod broadcast;

mod connection;

mod tasks;

// Records log lines for tests.
#[cfg(test)]
mod heard;

pub use connection::{Connection, Subscribe};
pub use reentrant::{
    Batch, BatchGuard, Guard, Holder, Lock, Names, ReentrantLocks, Released, Settings, channel,
    latch_key, token_key,
};
pub use tasks::Tasks;
