//! Re-entrant locks in Redisson's layout: a Java service on the same Redis sees them, waits for them, and is waited
//! for.
//!
//! # Model
//!
//! A lock is a hash with one field: the *holder*, and how many entries it has. A holder is a task, or another unit of
//! work that may enter twice; [`ReentrantLocks::holder`] makes one. Every [`Guard`] is one entry, and ends when it is
//! released or dropped. A waiter tries, subscribes, **tries again now that it can't miss a message**, and then sleeps
//! until a message comes or the other holder's lease has ended.
//!
//! # Authority
//!
//! Redis decides who holds a lock, in one script per change. The local monotonic clock decides only how long a holder
//! can be *sure*: for one lease after its last successful renewal was sent. After that, or when a renewal says that the
//! lock is no longer the holder's, the guard's token is cancelled. (Redisson doesn't tell its holders.)
//!
//! # Effect of each failure
//!
//! * The reply to an unlock is lost: the request is sent again, and a latch in Redis makes it repeat its first answer.
//! * The reply to an acquire is lost: the caller gets an error. If the acquire was executed, no task renews the lock,
//!   so it is free again when the lease ends. A retry by the same holder enters twice, with the same result.
//! * The future of an acquire is dropped: each try is a task that completes anyway. If nobody takes its guard, the
//!   guard is dropped, which releases the lock.
//! * The listening connection breaks: all waiters try again and subscribe again.
//! * The holder dies: the lease ends, and waiters wake up by themselves.
//! * The server's clock is set back: leases get longer by as much. If a longest lease is set, a client that finds more
//!   than that left shortens the lease to one of its own. A live holder renews it.
//!
//! # What is not promised
//!
//! Fairness, and exclusion where the crate doesn't promise it. If a holder has lost a lock and enters it again while an
//! earlier guard still exists, the lock may stay held until its lease ends. To be safe, use a new holder.

// The map, in reading order: each module uses only modules below it.

// Tests of the scripts, one by one.
#[cfg(test)]
mod scripts;

mod locks;

mod lock;

mod batch;

mod client;

mod renewal;

mod wake;

mod layout;

mod names;

mod settings;

pub use batch::{Batch, BatchGuard};
pub use layout::{Holder, Released, channel, latch_key, token_key};
pub use lock::{Guard, Lock};
pub use locks::ReentrantLocks;
pub use names::Names;
pub use settings::Settings;
