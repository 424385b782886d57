#![doc = include_str!("../README.md")]
#![warn(missing_docs, missing_debug_implementations, clippy::unwrap_used)]
#![forbid(unsafe_code)]

//!
//! # Model
//!
//! A lock is a key that names its holder and expires after its *lease*. The creator of the key holds the lock; the lease
//! is renewed at a third of its length, and every change is a script that acts only while the key still names that holder.
//!
//! # Authority
//!
//! Redis decides which holder has a lock. The local, monotonic clock is trusted for one thing: the moment from which the
//! holder can no longer be *sure*, counted from before the last renewal was sent. At that moment the guard's token is
//! cancelled, whether Redis answers or not.
//!
//! # Effect of each failure
//!
//! * The holder dies: the lease ends, and the next holder gets the lock.
//! * The holder is paused past its lease: another holder may have the lock by then. The paused one is told when it runs
//!   again, but a write that it had already sent can't be called back. A fencing token lets the resource refuse that write.
//! * Redis is away: no lock is taken, and holders are told in time that they can't be sure.
//! * Redis forgets (a restart without its data, a fail-over): two holders may have one lock.

// The map, in reading order: each module uses only modules below it.

#[cfg(feature = "redlock")]
pub mod redlock;

pub mod owner;

mod watchdog;

mod reentrant;

mod script;

// A server for subscriptions, for tests.
#[cfg(test)]
mod broadcast;

mod connection;

mod tasks;

// Log lines that tests hear.
#[cfg(test)]
mod heard;

pub use connection::{Connection, Subscribe};
pub use reentrant::{
    Batch, BatchGuard, Guard, Holder, Lock, Names, ReentrantLocks, Released, Settings, channel,
    latch_key, token_key,
};
pub use tasks::Tasks;
